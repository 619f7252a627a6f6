/* The border of the component, by hand: the imports and exports of world `filter` of `wit/v1` as the canonical ABI of the component
 * model flattens them. Lists and strings are a pointer and a length; a result of more than one word lies in memory. */
#include "penstock.h"

#define IMPORT(interface, function)                                                                                                \
    __attribute__((import_module("penstock:plugin/" interface "@1.0.0"), import_name(function)))
#define EXPORT(name) __attribute__((export_name(name)))

enum { LAYOUT = 1, VERDICT_HEADER = 4, VERDICT_WORDS = 10, PAGE = 65536 };

typedef struct {
    const uint32_t *words;
    size_t count;
} word_list;

IMPORT("log", "write")
void import_log_write(uint32_t level, const uint8_t *text, size_t length, const void *fields, size_t count);
IMPORT("config", "get")
void import_config_get(const uint8_t *key, size_t length, void *optional_string);
IMPORT("clock", "now") uint64_t import_clock_now(void);

/* Memory: allocations follow one another, and all of a call go at once when its answer has been read. */

extern uint8_t __heap_base;
static uintptr_t heap_end;
/* Where the heap of a call begins: what `plugin_init` allocated lies below. */
static uintptr_t call_begin;

static void *allocate_aligned(size_t length, size_t alignment) {
    if (heap_end == 0) {
        heap_end = (uintptr_t)&__heap_base;
    }
    uintptr_t start = (heap_end + alignment - 1) & ~(uintptr_t)(alignment - 1);
    uintptr_t memory = __builtin_wasm_memory_size(0) * PAGE;
    if (start < heap_end || length > UINTPTR_MAX - start) {
        __builtin_trap();
    }
    heap_end = start + length;
    if (heap_end > memory) {
        size_t pages = (heap_end - memory - 1) / PAGE + 1;
        if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1) {
            __builtin_trap();
        }
    }
    return (void *)start;
}

void *allocate(size_t length) { return allocate_aligned(length, 8); }

/* How the broker gets memory for what it hands over. */
EXPORT("cabi_realloc") void *cabi_realloc(void *old, size_t old_length, size_t alignment, size_t length) {
    uint8_t *fresh = allocate_aligned(length, alignment);
    if (old_length != 0) {
        __builtin_memcpy(fresh, old, old_length < length ? old_length : length);
    }
    return fresh;
}

/* Imports */

void log_line(enum log_level level, slice text) { import_log_write(level, text.bytes, text.length, NULL, 0); }

uint64_t clock_now(void) { return import_clock_now(); }

/* The rest of a JSON text, which the broker wrote: it is whole. */
typedef struct {
    const uint8_t *next;
    const uint8_t *end;
} json;

static bool config_get(slice key, json *value) {
    struct {
        uint8_t some;
        slice text;
    } found;
    import_config_get(key.bytes, key.length, &found);
    *value = (json){found.text.bytes, found.text.bytes + found.text.length};
    return found.some;
}

static bool json_take(json *value, uint8_t byte) {
    if (value->next == value->end || *value->next != byte) {
        return false;
    }
    value->next++;
    return true;
}

/* The same for what may have space before it. */
static bool json_token(json *value, uint8_t byte) {
    while (json_take(value, ' ') || json_take(value, '\n') || json_take(value, '\t') || json_take(value, '\r')) {
    }
    return json_take(value, byte);
}

static uint32_t json_hex(json *value) {
    uint32_t number = 0;
    for (int digit = 0; digit < 4 && value->next < value->end; digit++) {
        uint8_t byte = *value->next++;
        number = number << 4 | (byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
    }
    return number;
}

/* What stands after a backslash. Two escapes of UTF-16 make one character above U+FFFF. */
static size_t json_escape(json *value, uint8_t *out) {
    uint8_t letter = *value->next++;
    static const uint8_t letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    if (letter != 'u') {
        for (size_t place = 0; place < sizeof letters - 1; place++) {
            if (letter == letters[place]) {
                letter = meanings[place];
                break;
            }
        }
        out[0] = letter;
        return 1;
    }
    uint32_t code = json_hex(value);
    if (code >= 0xd800 && code < 0xdc00 && json_take(value, '\\') && json_take(value, 'u')) {
        code = 0x10000 + ((code - 0xd800) << 10) + (json_hex(value) - 0xdc00);
    }
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t place = length - 1; place > 0; place--) {
        out[place] = 0x80 | (code & 0x3f);
        code >>= 6;
    }
    out[0] = (uint8_t)((0xf00 >> length) | code);
    return length;
}

static bool json_string(json *value, slice *string) {
    if (!json_token(value, '"')) {
        return false;
    }
    uint8_t *text = allocate((size_t)(value->end - value->next));
    size_t length = 0;
    while (value->next < value->end && *value->next != '"') {
        if (json_take(value, '\\') && value->next < value->end) {
            length += json_escape(value, text + length);
        } else {
            text[length++] = *value->next++;
        }
    }
    *string = (slice){text, length};
    return json_take(value, '"');
}

bool config_string(slice key, slice *string) {
    json value;
    return config_get(key, &value) && json_string(&value, string);
}

bool config_strings(slice key, slice **strings, size_t *count) {
    json value;
    if (!config_get(key, &value) || !json_token(&value, '[')) {
        return false;
    }
    *count = 0;
    /* A string takes at least three bytes of the list. */
    *strings = allocate(((size_t)(value.end - value.next) / 3 + 1) * sizeof(slice));
    while (!json_token(&value, ']')) {
        if (*count > 0 && !json_token(&value, ',')) {
            return false;
        }
        if (!json_string(&value, &(*strings)[*count])) {
            return false;
        }
        *count += 1;
    }
    return true;
}

size_t find(slice whole, slice part, size_t from) {
    if (part.length == 0) {
        return whole.length;
    }
    for (size_t place = from; place + part.length <= whole.length; place++) {
        size_t same = 0;
        while (same < part.length && whole.bytes[place + same] == part.bytes[same]) {
            same++;
        }
        if (same == part.length) {
            return place;
        }
    }
    return whole.length;
}

/* Exports */

EXPORT("penstock:plugin/lifecycle@1.0.0#init") void *export_init(const uint8_t *config, size_t length) {
    (void)config, (void)length;
    static struct {
        uint8_t failed;
        slice text;
    } result;
    result.text = plugin_init();
    result.failed = result.text.length != 0;
    call_begin = heap_end;
    return &result;
}

static slice field(const uint8_t *arena, const uint32_t *words) { return (slice){arena + words[0], words[1]}; }

static message read_message(const uint8_t *arena, const uint32_t *entry) {
    return (message){
        .channel_id = field(arena, entry),
        .channel_kind = entry[2],
        .sender = field(arena, entry + 3),
        .payload = field(arena, entry + 5),
        .client_message_number = field(arena, entry + 7),
        .topic = field(arena, entry + 9),
        .expire_seconds = entry[11],
        .not_stored = entry[12] & 1,
    };
}

/* The fields of an answer, gathered after the verdicts are known, so that each is copied once. */
static void place_field(uint32_t *words, slice bytes, uint8_t *arena, size_t *length) {
    words[0] = *length;
    words[1] = bytes.length;
    __builtin_memcpy(arena + *length, bytes.bytes, bytes.length);
    *length += bytes.length;
}

static void write_verdict(uint32_t *entry, const verdict *judged, uint8_t *arena, size_t *length) {
    entry[0] = judged->kind;
    entry[1] = judged->code;
    entry[4] = judged->changed;
    entry[9] = judged->expire_seconds;
    place_field(entry + 2, judged->text, arena, length);
    place_field(entry + 5, judged->payload, arena, length);
    place_field(entry + 7, judged->topic, arena, length);
}

static struct {
    slice arena;
    word_list index;
} answer;

static void write_answer(const verdict *verdicts, uint32_t count, size_t bytes) {
    uint8_t *arena = allocate(bytes);
    uint32_t *index = allocate((VERDICT_HEADER + count * VERDICT_WORDS) * sizeof(uint32_t));
    index[0] = LAYOUT, index[1] = VERDICT_HEADER, index[2] = VERDICT_WORDS, index[3] = count;
    size_t length = 0;
    for (uint32_t place = 0; place < count; place++) {
        write_verdict(index + VERDICT_HEADER + place * VERDICT_WORDS, &verdicts[place], arena, &length);
    }
    answer.arena = (slice){arena, length};
    answer.index = (word_list){index, VERDICT_HEADER + count * VERDICT_WORDS};
}

EXPORT("penstock:plugin/before-send@1.0.0#handle")
void *export_handle(const uint8_t *arena, size_t length, const uint32_t *index, size_t words) {
    (void)length;
    if (words < 4 || index[0] != LAYOUT) {
        log_line(ERROR, TEXT("the layout of the frame is not known"));
        __builtin_trap();
    }
    uint32_t count = index[3];
    verdict *verdicts = allocate(count * sizeof(verdict));
    bool all_allowed = true;
    size_t bytes = 0;
    for (uint32_t place = 0; place < count; place++) {
        message message = read_message(arena, index + index[1] + place * index[2]);
        verdict judged = plugin_before_send(&message);
        verdicts[place] = judged;
        all_allowed &= judged.kind == ALLOW;
        bytes += judged.text.length + judged.payload.length + judged.topic.length;
    }
    answer.arena = (slice){NULL, 0};
    answer.index = (word_list){NULL, 0};
    /* An empty answer allows every message. */
    if (!all_allowed) {
        write_answer(verdicts, count, bytes);
    }
    return &answer;
}

EXPORT("cabi_post_penstock:plugin/before-send@1.0.0#handle") void export_handle_read(void *result) {
    (void)result;
    heap_end = call_begin;
}
