#include "penstock.h"

static slice replace, by, refuse, text;

/* Called once for each instance. The configuration is that of the binding over the defaults of plugin.toml. */
slice plugin_init(void) {
    if (!config_string(TEXT("replace"), &replace) || !config_string(TEXT("by"), &by) ||
        !config_string(TEXT("refuse"), &refuse) || !config_string(TEXT("text"), &text)) {
        return TEXT("replace, by, refuse, text: give a string for each");
    }
    log_line(INFO, TEXT("{{name}} is ready"));
    return (slice){NULL, 0};
}

static slice replaced(slice payload) {
    size_t count = 0;
    for (size_t place = find(payload, replace, 0); place < payload.length; count++) {
        place = find(payload, replace, place + replace.length);
    }
    uint8_t *bytes = allocate(payload.length - count * replace.length + count * by.length);
    size_t length = 0, rest = 0;
    while (rest < payload.length) {
        size_t end = find(payload, replace, rest);
        __builtin_memcpy(bytes + length, payload.bytes + rest, end - rest);
        length += end - rest;
        rest = end;
        if (end < payload.length) {
            __builtin_memcpy(bytes + length, by.bytes, by.length);
            length += by.length;
            rest += replace.length;
        }
    }
    return (slice){bytes, length};
}

/* Called for each message that somebody wants to send. */
verdict plugin_before_send(const message *message) {
    slice payload = message->payload;
    if (find(payload, refuse, 0) < payload.length) {
        return (verdict){.kind = REJECT, .text = text};
    }
    if (find(payload, replace, 0) < payload.length) {
        return (verdict){.kind = REWRITE, .changed = PAYLOAD, .payload = replaced(payload)};
    }
    return (verdict){.kind = ALLOW};
}
