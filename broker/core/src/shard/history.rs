//! Which positions a history request means (client contract 7.3, RD-3). Pure arithmetic.

use super::peer::HistoryRange;
use crate::types::Seq;

/// The positions of one answer, both inclusive; empty when `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: Seq,
    pub(super) last: Seq,
    range: HistoryRange,
    lower: Seq,
    upper: Seq,
}

impl Window {
    /// The window of a range in a log from `log_start` to its last committed position `high_watermark`. A start of 0 means
    /// "from the beginning", which is never a gap (RD-3): it begins at what retention kept.
    pub(super) fn of(range: HistoryRange, log_start: Seq, high_watermark: Seq) -> Window {
        let limit = u64::from(range.limit.max(1));
        let beginning = if range.start.0 == 0 { log_start } else { Seq(1) };
        let visible = Seq(range.visible_from.0.max(beginning.0).max(1));
        if range.newer {
            let lower = Seq(range.start.0.max(visible.0));
            let upper = if range.end.0 == 0 {
                high_watermark
            } else {
                high_watermark.min(range.end.previous())
            };
            let last = Seq(upper.0.min(lower.0.saturating_add(limit - 1)));
            Window {
                first: lower,
                last,
                range,
                lower,
                upper,
            }
        } else {
            // Older: the end is exclusive and below the start.
            let lower = Seq(visible.0.max(range.end.0 + u64::from(range.end.0 > 0)));
            let upper = if range.start.0 == 0 {
                high_watermark
            } else {
                high_watermark.min(range.start)
            };
            let first = Seq(lower.0.max((upper.0 + 1).saturating_sub(limit)));
            Window {
                first,
                last: upper,
                range,
                lower,
                upper,
            }
        }
    }

    /// Whether newer messages are wanted: then a page is filled from its start, else from its end.
    pub(super) fn newer(&self) -> bool {
        self.range.newer
    }

    /// How many positions.
    pub(super) fn count(&self) -> u32 {
        u32::try_from((self.last.0 + 1).saturating_sub(self.first.0)).unwrap_or(u32::MAX)
    }

    /// Whether a position belongs to the answer.
    pub(super) fn contains(&self, seq: Seq) -> bool {
        seq >= self.first && seq <= self.last
    }

    /// Whether more positions match than are answered; what retention removed does not count.
    pub(super) fn more(&self, log_start: Seq) -> bool {
        if self.range.newer {
            self.last < self.upper
        } else {
            self.first > self.lower.max(log_start)
        }
    }

    /// Whether a read that found nothing leaves out a position of the answer. The window was committed when it was fixed, so
    /// this replica has withdrawn records since (R30), or retention overtook the read: what was found so far is not all.
    pub(super) fn lacks(&self, log_start: Seq) -> bool {
        self.first <= self.last && log_start <= self.last
    }

    /// The first kept position, when retention removed a part of what the answer covers.
    pub(super) fn gap(&self, log_start: Seq) -> Option<Seq> {
        (self.first < log_start && self.first <= self.last).then_some(log_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(newer: bool, start: u64, end: u64, limit: u32, visible: u64) -> (u64, u64, bool) {
        let range = HistoryRange {
            start: Seq(start),
            end: Seq(end),
            limit,
            newer,
            visible_from: Seq(visible),
        };
        let window = Window::of(range, Seq(1), Seq(100));
        (window.first.0, window.last.0, window.more(Seq(1)))
    }

    #[test]
    fn older_messages_end_at_the_start_and_stop_above_the_end() {
        assert_eq!(window(false, 0, 0, 30, 1), (71, 100, true));
        assert_eq!(window(false, 50, 0, 30, 1), (21, 50, true));
        assert_eq!(window(false, 50, 40, 30, 1), (41, 50, false));
        assert_eq!(window(false, 10, 0, 30, 1), (1, 10, false));
        assert_eq!(window(false, 0, 0, 30, 90), (90, 100, false));
        assert_eq!(window(false, 500, 0, 10, 1), (91, 100, true));
    }

    #[test]
    fn newer_messages_begin_at_the_start_and_end_below_the_end() {
        assert_eq!(window(true, 0, 0, 30, 1), (1, 30, true));
        assert_eq!(window(true, 91, 0, 30, 1), (91, 100, false));
        assert_eq!(window(true, 40, 50, 30, 1), (40, 49, false));
        assert_eq!(window(true, 5, 0, 10, 20), (20, 29, true));
    }

    #[test]
    fn removed_positions_are_named() {
        let window = |newer, start, end| {
            let range = HistoryRange {
                start: Seq(start),
                end: Seq(end),
                limit: 60,
                newer,
                visible_from: Seq(1),
            };
            Window::of(range, Seq(41), Seq(100))
        };
        let older = window(false, 60, 0);
        assert_eq!((older.gap(Seq(41)), older.more(Seq(41))), (Some(Seq(41)), false));
        let newer = window(true, 5, 0);
        assert_eq!((newer.gap(Seq(41)), newer.more(Seq(41))), (Some(Seq(41)), true));
        assert_eq!(window(false, 60, 45).gap(Seq(41)), None);
        let removed = window(true, 5, 30);
        assert_eq!(
            (removed.first, removed.last, removed.gap(Seq(41))),
            (Seq(5), Seq(29), Some(Seq(41)))
        );
    }

    /// RD-3: a read that comes to nothing completes an answer only where there was nothing to read.
    #[test]
    fn nothing_read_is_complete_only_where_nothing_was_kept() {
        let window = |newer, start, end, high_watermark| {
            let range = HistoryRange {
                start: Seq(start),
                end: Seq(end),
                limit: 50,
                newer,
                visible_from: Seq(1),
            };
            Window::of(range, Seq(1), Seq(high_watermark))
        };
        for newer in [false, true] {
            assert!(!window(newer, 0, 0, 0).lacks(Seq(1)), "an empty log");
            assert!(window(newer, 0, 0, 53).lacks(Seq(1)), "the log was cut");
        }
        assert!(!window(true, 60, 0, 53).lacks(Seq(1)));
        assert!(window(true, 5, 30, 53).lacks(Seq(29)));
        assert!(!window(true, 5, 30, 53).lacks(Seq(30)), "all of it was removed");
    }

    /// RD-3.
    #[test]
    fn a_start_of_zero_is_never_a_gap() {
        for newer in [false, true] {
            let range = HistoryRange {
                start: Seq(0),
                end: Seq(0),
                limit: 200,
                newer,
                visible_from: Seq(1),
            };
            let window = Window::of(range, Seq(41), Seq(100));
            assert_eq!((window.first, window.last), (Seq(41), Seq(100)));
            assert_eq!((window.gap(Seq(41)), window.more(Seq(41))), (None, false));
        }
        let range = HistoryRange {
            start: Seq(0),
            end: Seq(0),
            limit: 10,
            newer: true,
            visible_from: Seq(1),
        };
        let window = Window::of(range, Seq(41), Seq(100));
        assert_eq!(
            (window.first, window.last, window.more(Seq(41))),
            (Seq(41), Seq(50), true)
        );
    }

    #[test]
    fn an_empty_log_and_a_start_beyond_the_end_are_empty() {
        for (newer, start) in [(false, 0), (true, 0), (true, 9)] {
            let range = HistoryRange {
                start: Seq(start),
                end: Seq(0),
                limit: 10,
                newer,
                visible_from: Seq(1),
            };
            let window = Window::of(range, Seq(1), Seq(0));
            assert!(
                window.first > window.last && window.count() == 0,
                "{newer} {start}"
            );
            assert_eq!((window.gap(Seq(1)), window.more(Seq(1))), (None, false));
        }
    }
}
