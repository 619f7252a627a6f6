/* Refuses messages with listed words, or masks the words. Letters of ASCII are compared without their case.
 *
 * The configuration: `{"words": ["..."], "mode": "mask"}` or `"reject"`, and for the latter `"text"`, shown to the sender. */
#include "penstock.h"

static slice *words;
static size_t count;
static bool masks;
static slice text;

static bool same(slice one, slice other) { return one.length == other.length && find(one, other, 0) == 0; }

slice plugin_init(void) {
    if (!config_strings(TEXT("words"), &words, &count)) {
        return TEXT("words: give a list of texts");
    }
    for (size_t place = 0; place < count; place++) {
        if (words[place].length == 0) {
            return TEXT("words: one is empty");
        }
    }
    slice mode;
    if (!config_string(TEXT("mode"), &mode) || (!same(mode, TEXT("mask")) && !same(mode, TEXT("reject")))) {
        return TEXT("mode: mask or reject");
    }
    masks = same(mode, TEXT("mask"));
    if (!config_string(TEXT("text"), &text)) {
        return TEXT("text: give a text");
    }
    return (slice){NULL, 0};
}

static uint8_t lower(uint8_t byte) { return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte; }

static bool begins(slice rest, slice word) {
    if (word.length > rest.length) {
        return false;
    }
    for (size_t place = 0; place < word.length; place++) {
        if (lower(rest.bytes[place]) != lower(word.bytes[place])) {
            return false;
        }
    }
    return true;
}

/* Bytes of the longest word that begins here; 0 for none. */
static size_t word_at(slice payload, size_t place) {
    slice rest = {payload.bytes + place, payload.length - place};
    size_t longest = 0;
    for (size_t word = 0; word < count; word++) {
        if (words[word].length > longest && begins(rest, words[word])) {
            longest = words[word].length;
        }
    }
    return longest;
}

/* The payload with a star for each character of a word: all bytes of UTF-8 but 10xxxxxx begin one. */
static slice masked(slice payload) {
    uint8_t *bytes = allocate(payload.length);
    size_t length = 0;
    for (size_t place = 0; place < payload.length;) {
        size_t end = place + word_at(payload, place);
        if (end == place) {
            bytes[length++] = payload.bytes[place++];
        }
        for (; place < end; place++) {
            if ((payload.bytes[place] & 0xc0) != 0x80) {
                bytes[length++] = '*';
            }
        }
    }
    return (slice){bytes, length};
}

verdict plugin_before_send(const message *message) {
    slice payload = message->payload;
    for (size_t place = 0; place < payload.length; place++) {
        if (word_at(payload, place) == 0) {
            continue;
        }
        if (masks) {
            return (verdict){.kind = REWRITE, .changed = PAYLOAD, .payload = masked(payload)};
        }
        return (verdict){.kind = REJECT, .text = text};
    }
    return (verdict){.kind = ALLOW};
}
