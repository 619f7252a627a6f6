/* What a filter in C sees of Penstock: the flat frame of a call, which `broker/docs/plugin-frame.md` describes, the imports, and
 * the exports that `plugin.c` answers through. There is no libc below it, and no generated code. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that somebody else keeps. Text is UTF-8 and has no end mark. */
typedef struct {
    const uint8_t *bytes;
    size_t length;
} slice;

#define TEXT(literal) ((slice){(const uint8_t *)(literal), sizeof(literal) - 1})

/* A message that somebody wants to send. What it names is good for this call only. */
typedef struct {
    slice channel_id;
    uint32_t channel_kind;
    slice sender;
    slice payload;
    slice client_message_number;
    slice topic;
    /* Seconds until it is no longer shown; 0 for ever. */
    uint32_t expire_seconds;
    /* Whether it is delivered without being stored. */
    bool not_stored;
} message;

enum verdict_kind { ALLOW = 0, REJECT = 1, REWRITE = 2 };
enum changed { PAYLOAD = 1, TOPIC = 2, EXPIRY = 4 };

/* What becomes of a message; all zero allows it as it is. */
typedef struct {
    enum verdict_kind kind;
    /* REJECT: the code that the sender gets, 0 leaves it to the broker, and words of at most 1 KiB. */
    uint32_t code;
    slice text;
    /* REWRITE: what is changed, a sum of `enum changed`, and the new values. */
    uint32_t changed;
    slice payload;
    slice topic;
    uint32_t expire_seconds;
} verdict;

/* Written by the plugin. `plugin_init` is called once for each instance; its configuration is read with the functions below, and
 * an error text refuses it (an empty one accepts it). What is allocated in it stays. */
slice plugin_init(void);
verdict plugin_before_send(const message *message);

/* Memory until the end of the call. It never returns NULL: an instance that has no more memory ends. */
void *allocate(size_t length);

/* The string at this key of the configuration. False when there is none or it is no string. */
bool config_string(slice key, slice *string);

/* The list of strings at this key, allocated. False when there is none or it is no list of strings. */
bool config_strings(slice key, slice **strings, size_t *count);

enum log_level { TRACE, DEBUG, INFO, WARN, ERROR };

/* A line for the operator. */
void log_line(enum log_level level, slice text);

/* The time of the event that is handled, ms since 1970. */
uint64_t clock_now(void);

/* Where `part` first stands in `whole`, at or after `from`; `whole.length` when it does not. An empty part is nowhere. */
size_t find(slice whole, slice part, size_t from);

#endif
