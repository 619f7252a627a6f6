// Reason codes in words (client contract, section 5.1).

const WORDS = {
  0: "the broker gave no reason",
  1: "done",
  2: "the uid or the token was not accepted",
  3: "you are not a member of this group",
  4: "you are on the denylist of this conversation",
  5: "there is no such group: create it first",
  6: "the user is not on this node",
  7: "you were offline for the broker",
  8: "the message key was wrong",
  9: "the message could not be decoded",
  10: "the message could not be forwarded to its node",
  11: "sending is not allowed here",
  12: "the session was ended by the broker",
  13: "you are not on the allowlist of this conversation",
  14: "the token could not be looked up",
  15: "the broker failed",
  16: "the broker does not take this id",
  17: "the message reached the wrong node",
  18: "the conversation has no leader at the moment: retry",
  19: "this group is banned",
  20: "the broker does not know this kind of message",
  21: "the client gave no key",
  22: "too many messages at once, or the broker is busy: retry",
  23: "the broker has no rule for this kind of conversation",
  24: "this group was disbanded",
  25: "you may not send at the moment",
  26: "this group is being deleted",
  27: "this page is too old for the broker",
  28: "another message was sent under the same name before",
  29: "this conversation is full",
};

/** The code of the error object that says: nobody knows whether the message was stored. */
const OUTCOME_UNKNOWN = -32002;

/** Why a request was answered as it was, for people. */
export function reasonWords(reasonCode) {
  return WORDS[reasonCode] ?? `reason ${reasonCode}`;
}

/** What a `Refusal` of the session means, for people. */
export function refusalWords({ code, message }) {
  return code === OUTCOME_UNKNOWN
    ? "no answer in time; whether it is stored is not known, and a retry stores it once"
    : message;
}
