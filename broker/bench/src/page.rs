//! The report as one page that needs nothing else.

use std::fmt::Write as _;

use crate::chart::{Chart, Limit, Line, Scale, escaped, short};
use crate::floor::{Echo, Floor};
use crate::meter::Percentiles;
use crate::report::{Report, Traffic};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6470;--paper:#fcfcfb;--rule:#e3e3df;--a:#2a6fbb;--b:#c4641a;--floor:#8a8f98;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e7e9;--soft:#a2a9b3;--paper:#16181b;--rule:#2c3036;--a:#6ea8ea;--b:#e79a5b;--floor:#8a8f98;--bad:#ff8a80}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:900px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.35rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .2rem}p{margin:.3rem 0}.soft,.mark{color:var(--soft);fill:var(--soft)}\
svg{width:100%;height:auto;display:block}text{font:12px system-ui,sans-serif}.grid{stroke:var(--rule)}\
.line{fill:none;stroke-width:2;stroke-linejoin:round}.line.a{stroke:var(--a)}.line.b{stroke:var(--b)}\
line.limit{stroke:var(--floor);stroke-dasharray:5 4}text.limit{fill:var(--floor)}\
.legend span{margin-right:1.2rem}.legend i{display:inline-block;width:1.1rem;height:0;border-top:3px solid;margin-right:.4rem;vertical-align:middle}\
.legend i.a{border-color:var(--a)}.legend i.b{border-color:var(--b)}.legend i.floor{border-top:2px dashed var(--floor)}\
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}th,td{padding:.25rem .9rem .25rem 0;text-align:right;border-bottom:1px solid var(--rule)}\
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:var(--soft)}.bad{color:var(--bad);font-weight:600}";

/// The page of a report, with the limits of the machine beside it if they are known.
#[must_use]
pub(crate) fn page(report: &Report, floor: Option<&Floor>) -> String {
    let mut body = head(report);
    if let Some(traffic) = &report.traffic {
        throughput(report, traffic, floor, &mut body);
        latency(report, traffic, floor, &mut body);
        accounts(traffic, &mut body);
    }
    rest(report, &mut body);
    if let Some(floor) = floor {
        floor_table(floor, &mut body);
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>penstock bench: {} at {}</title><style>{STYLE}</style><body>{body}</body></html>\n",
        report.mode,
        escaped(&report.target)
    )
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let pace = match (report.rate, report.window) {
        (Some(rate), _) => format!("{} bytes, {rate} messages/s, open loop", report.payload),
        (None, Some(window)) => format!("{} bytes, closed loop of {window} each", report.payload),
        (None, None) => "no messages".to_owned(),
    };
    let load = machine.load_average.map_or(String::new(), |load| {
        format!(", load average {load:.2} at the start")
    });
    let verdict = match report.failure() {
        Some(failure) => format!("<p class=\"bad\">Not clean: {}</p>", escaped(&failure)),
        None => "<p>Clean: nothing missing, duplicated or out of order.</p>".to_owned(),
    };
    format!(
        "<h1>{} at {}</h1><p class=\"soft\">{} connections, {pace}, {:.1} s measured. {} processors ({}){load}.</p>{verdict}",
        report.mode,
        escaped(&report.target),
        report.connections,
        report.duration_s,
        machine.cpus,
        escaped(machine.model.as_deref().unwrap_or("unknown")),
    )
}

/// The bare echo over what the run spoke.
fn echo_beside<'a>(report: &Report, floor: &'a Floor) -> &'a Echo {
    if report.target.starts_with("ws://") {
        &floor.websocket
    } else {
        &floor.tcp
    }
}

fn throughput(report: &Report, traffic: &Traffic, floor: Option<&Floor>, body: &mut String) {
    let line = |name: &str, class, value: fn(&crate::report::Second) -> f64| Line {
        name: name.to_owned(),
        class,
        points: traffic
            .series
            .iter()
            .map(|second| (second.at_s, value(second)))
            .collect(),
    };
    let mut limits = Vec::new();
    if let Some(floor) = floor {
        let echo = echo_beside(report, floor);
        limits.push(Limit {
            name: format!(
                "{} echoes/s of {} clients",
                short(echo.round_trips_per_s),
                echo.clients
            ),
            at: echo.round_trips_per_s,
        });
        limits.extend(floor.batch(64).map(|disk| Limit {
            name: format!("{} synced records/s in batches of 64", short(disk.records_per_s)),
            at: disk.records_per_s,
        }));
    }
    let end = traffic.series.last().map_or(1.0, |second| second.at_s);
    let step = (end / 8.0).ceil().max(1.0);
    let chart = Chart {
        title: "Messages per second over time".to_owned(),
        horizontal: "seconds; the first are warm-up".to_owned(),
        range: (0.0, end),
        marks: (0_u32..10)
            .map(|index| f64::from(index) * step)
            .filter(|at| *at <= end)
            .map(|at| (at, short(at)))
            .collect(),
        scale: Scale::Linear,
        lines: vec![
            line(
                &format!("acknowledged, {}/s measured", short(traffic.acked_per_s)),
                "a",
                |second| second.acked_per_s,
            ),
            line(
                &format!("delivered, {}/s measured", short(traffic.delivered_per_s)),
                "b",
                |second| second.delivered_per_s,
            ),
        ],
        limits,
    };
    let _ = write!(body, "<h2>Messages per second</h2>{}", chart.svg());
}

fn latency(report: &Report, traffic: &Traffic, floor: Option<&Floor>, body: &mut String) {
    let nines = |share: f64| -(1.0 - share).log10();
    let line = |name: String, class, curve: &[(f64, f64)]| Line {
        name,
        class,
        points: curve
            .iter()
            .map(|(share, value)| (nines(*share), *value))
            .collect(),
    };
    let mut limits = Vec::new();
    if let Some(floor) = floor {
        let echo = echo_beside(report, floor);
        limits.push(Limit {
            name: format!("an echo alone, {} ms", short(echo.round_trip_ms.p50)),
            at: echo.round_trip_ms.p50,
        });
        limits.extend(floor.batch(1).map(|disk| Limit {
            name: format!("one synced append, {} ms", short(disk.append_ms.p50)),
            at: disk.append_ms.p50,
        }));
    }
    let curves = [&traffic.curves.sendack, &traffic.curves.recv];
    let end = curves
        .iter()
        .filter_map(|curve| curve.last())
        .map(|(share, _)| nines(*share))
        .fold(2.0, f64::max);
    let marks = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
    let chart = Chart {
        title: "Latency by share of messages".to_owned(),
        horizontal: "share of messages that were faster".to_owned(),
        range: (0.0, end),
        marks: marks
            .into_iter()
            .filter(|share| nines(*share) <= end + 0.01)
            .map(|share| (nines(share), format!("{}%", short_percent(share))))
            .collect(),
        scale: Scale::Logarithmic,
        lines: vec![
            line("SENDACK".to_owned(), "a", curves[0]),
            line("RECV".to_owned(), "b", curves[1]),
        ],
        limits,
    };
    let _ = write!(body, "<h2>Latency in milliseconds</h2>{}", chart.svg());
    let mut rows = vec![("SENDACK", &traffic.sendack_ms), ("RECV", &traffic.recv_ms)];
    rows.extend(
        traffic
            .schedule_lag_ms
            .as_ref()
            .map(|lag| ("the tool's lag", lag)),
    );
    percentile_table(&rows, body);
}

/// 0.999 as 99.9.
fn short_percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn percentile_table(rows: &[(&str, &Percentiles)], body: &mut String) {
    body.push_str("<table><tr><th>ms<th>p50<th>p90<th>p99<th>p99.9<th>max<th>count</tr>");
    for (name, row) in rows {
        let _ = write!(
            body,
            "<tr><td>{}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{}</tr>",
            escaped(name),
            row.p50,
            row.p90,
            row.p99,
            row.p999,
            row.max,
            row.count
        );
    }
    body.push_str("</table>");
}

fn accounts(traffic: &Traffic, body: &mut String) {
    let (totals, verify) = (&traffic.totals, &traffic.verify);
    body.push_str("<h2>Accounts of the whole run</h2><table>");
    for (name, count) in [
        ("sent", totals.sent),
        ("acknowledged", totals.acked),
        ("deliveries owed", totals.owed),
        ("delivered", totals.delivered),
        ("missing", verify.missing),
        ("duplicated", verify.duplicated),
        ("out of order", verify.reordered),
        ("corrupt", verify.corrupt),
        ("misdirected", verify.misdirected),
        ("never answered", totals.unanswered),
        ("never sent", totals.unsent),
    ] {
        let _ = write!(body, "<tr><td>{name}<td>{count}</tr>");
    }
    for (reason, count) in &traffic.refused {
        let _ = write!(body, "<tr><td>refused: {}<td>{count}</tr>", escaped(reason));
    }
    body.push_str("</table>");
}

fn rest(report: &Report, body: &mut String) {
    let connect = &report.connect;
    let _ = write!(
        body,
        "<h2>Connections</h2><p>{} opened in {:.1} s, {} per second.</p>",
        connect.connected,
        connect.seconds,
        short(connect.per_s)
    );
    let mut rows = vec![("CONNACK", &connect.connack_ms)];
    if let Some(login) = &report.login {
        rows.extend([
            ("SENDACK before the storm", &login.sendack_before_ms),
            ("SENDACK during it", &login.sendack_during_ms),
            ("RECV before the storm", &login.recv_before_ms),
            ("RECV during it", &login.recv_during_ms),
        ]);
    }
    percentile_table(&rows, body);
    if let Some(process) = &report.process {
        let _ = write!(body, "<p>The server's process: {}.</p>", process.words());
    }
}

fn floor_table(floor: &Floor, body: &mut String) {
    let _ = write!(
        body,
        "<h2>Limits of the machine</h2><p class=\"soft\">{} bytes, no broker involved.</p>\
         <table><tr><th><th>per second<th>p50 ms<th>p99 ms</tr>",
        floor.record_bytes
    );
    let mut row = |name: String, per_second: f64, of: &Percentiles| {
        let _ = write!(
            body,
            "<tr><td>{name}<td>{}<td>{:.3}<td>{:.3}</tr>",
            short(per_second),
            of.p50,
            of.p99
        );
    };
    for disk in &floor.disk {
        row(
            format!("append of {} and fdatasync", disk.batch),
            disk.records_per_s,
            &disk.append_ms,
        );
    }
    for (name, echo) in [("TCP", &floor.tcp), ("WebSocket", &floor.websocket)] {
        row(
            format!("{name} echo: {} clients; one alone", echo.clients),
            echo.round_trips_per_s,
            &echo.round_trip_ms,
        );
    }
    body.push_str("</table>");
}
