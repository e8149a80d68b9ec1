//! The report as a page, and its chart as a picture. Both stand alone: nothing
//! is fetched, and there is no script.

use super::chart::chart;
use super::words;
use crate::replay::outcome::{Outcome, PolicyOutcome, RefusedKey, percent};
use crate::replay::{show, time};
use std::fmt::Write;
use std::time::Duration;

/// Text as it may stand in a page, also in an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
    out
}

/// The chart as a picture.
#[must_use]
pub fn svg(outcome: &Outcome) -> String {
    let chart = chart(outcome);
    let (width, height) = (chart.width + 32.0, chart.height + 84.0);
    let headline = escape(&headline(outcome));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0}" width="{width}" height="{height:.0}" role="img" aria-label="{headline}">
<style>{COLORS}{CHART}.ground{{fill:var(--ground)}}.title{{fill:var(--text);font:600 20px system-ui,sans-serif}}.lead{{fill:var(--soft);font:14px system-ui,sans-serif}}</style>
<rect class="ground" width="{width}" height="{height:.0}"/>
<text class="title" x="24" y="36">{headline}</text>
<text class="lead" x="24" y="58">{}</text>
<g transform="translate(16 72)">{}</g>
</svg>
"#,
        escape(&lead(outcome)),
        chart.body
    )
}

/// The whole report as a page.
#[must_use]
pub fn html(outcome: &Outcome) -> String {
    let mut page = Page { out: String::new(), outcome };
    page.head();
    if outcome.requests > 0 {
        page.chart();
        if outcome.policies.len() > 1 {
            page.comparison();
        }
        for policy in &outcome.policies {
            page.policy(policy);
        }
    }
    page.files();
    page.out.push_str("</main>\n</html>\n");
    page.out
}

fn headline(outcome: &Outcome) -> String {
    match outcome.policies.first() {
        Some(policy) if outcome.requests > 0 => {
            // A space that no line is broken at.
            let share = words::percent(policy.denied_percent()).replace(' ', "\u{a0}");
            format!("{} would have refused {share} of {}", policy.policy, words::counted(outcome.requests, "requests"))
        }
        _ => "There is no request in the log".to_string(),
    }
}

/// Who asked, and when.
fn lead(outcome: &Outcome) -> String {
    let Some((first, last)) = outcome.span else { return String::new() };
    let who = match outcome.key_fields.len() {
        0 => "One limiter for all requests".to_string(),
        1 if outcome.key_word() != "keys" => words::counted(outcome.keys, &outcome.key_word()),
        _ => format!("{}, told apart by {}", words::counted(outcome.keys, "keys"), outcome.key_fields.join(" and ")),
    };
    let span = words::duration(Duration::from_nanos(last - first));
    format!("{who}, from {} to {} UTC ({span})", time::show(first), time::show(last))
}

struct Page<'a> {
    out: String,
    outcome: &'a Outcome,
}

/// Writing to a string does not fail.
macro_rules! put {
    ($page:expr, $($arg:tt)*) => {{ let _ = writeln!($page.out, $($arg)*); }};
}

impl Page<'_> {
    fn head(&mut self) {
        let headline = escape(&headline(self.outcome));
        put!(self, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">");
        put!(self, "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        put!(self, "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{headline}</title>");
        put!(self, "<style>{COLORS}{CHART}{PAGE}</style>\n<main>\n<header><p class=\"brand\">suimon replay</p>");
        put!(self, "<h1>{headline}</h1>\n<p>{}</p></header>", escape(&lead(self.outcome)));
    }

    fn chart(&mut self) {
        let chart = chart(self.outcome);
        put!(
            self,
            "<section class=\"card\"><p class=\"legend\"><span class=\"key pass\"></span>let through <span class=\"key refuse\"></span>refused</p>"
        );
        put!(
            self,
            "<div class=\"wide\"><svg viewBox=\"0 0 {} {:.0}\" role=\"img\" aria-label=\"Requests over time\">{}</svg></div></section>",
            chart.width,
            chart.height,
            chart.body
        );
    }

    fn comparison(&mut self) {
        put!(self, "<section class=\"card\"><h2>Side by side</h2><div class=\"wide\"><table>");
        put!(
            self,
            "<tr><th>policy<th>refused<th>share<th>{} refused<th>longest refusal<th>longest wait</tr>",
            escape(&self.outcome.key_word())
        );
        for policy in &self.outcome.policies {
            put!(
                self,
                "<tr><td><code>{}</code><td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
                escape(&policy.policy.to_string()),
                words::count(policy.denied),
                words::percent(policy.denied_percent()),
                words::count(policy.keys_denied),
                policy.longest_stretch.as_ref().map_or("-".into(), |key| words::duration(key.longest_stretch)),
                policy.longest_wait.as_ref().map_or("-".into(), |key| words::duration(key.longest_wait)),
            );
        }
        put!(self, "</table></div></section>");
    }

    fn policy(&mut self, policy: &PolicyOutcome) {
        let outcome = self.outcome;
        put!(self, "<section><h2><code>{}</code></h2>\n<dl class=\"figures\">", escape(&policy.policy.to_string()));
        let share = |part: u64| words::percent(percent(part, outcome.requests));
        self.figure("let through", &words::count(policy.allowed), &share(policy.allowed));
        self.figure("refused", &words::count(policy.denied), &share(policy.denied));
        if policy.impossible > 0 {
            self.figure(
                "can never pass",
                &words::count(policy.impossible),
                "counted in refused; the limit lets no such cost through",
            );
        }
        if !outcome.key_fields.is_empty() {
            self.figure(
                &format!("{} refused", outcome.key_word()),
                &words::count(policy.keys_denied),
                &format!("of {}", words::count(outcome.keys)),
            );
        }
        if let Some(field) = &outcome.cost_field {
            let refused = outcome.cost.without(policy.allowed_cost);
            self.figure(
                &format!("{field} refused"),
                &words::count(refused.whole()),
                &format!("of {}", words::count(outcome.cost.whole())),
            );
        }
        if let Some(key) = &policy.longest_stretch {
            self.figure("longest refusal", &words::duration(key.longest_stretch), &self.whose(key));
        }
        if let Some(key) = &policy.longest_wait {
            self.figure("longest wait told", &words::duration(key.longest_wait), &self.whose(key));
        }
        put!(self, "</dl>");
        if !outcome.key_fields.is_empty() && policy.denied > 0 {
            self.most_denied(policy);
        }
        self.smallest(policy);
        put!(self, "</section>");
    }

    fn whose(&self, key: &RefusedKey) -> String {
        if key.fields.is_empty() { String::new() } else { key.shown() }
    }

    fn figure(&mut self, name: &str, value: &str, note: &str) {
        put!(
            self,
            "<div><dt>{}</dt><dd>{}</dd><dd class=\"note\">{}</dd></div>",
            escape(name),
            escape(value),
            escape(note)
        );
    }

    fn most_denied(&mut self, policy: &PolicyOutcome) {
        put!(self, "<div class=\"card\"><h3>Most refused</h3><div class=\"wide\"><table>");
        put!(
            self,
            "<tr><th>{}<th>requests<th>refused<th>share<th class=\"bar\"><th>longest refusal<th>longest wait</tr>",
            escape(&self.outcome.key_fields.join(", "))
        );
        let most = policy.most_denied.first().map_or(1, |key| key.denied).max(1);
        for key in &policy.most_denied {
            put!(
                self,
                "<tr><td class=\"name\">{}<td>{}<td>{}<td>{}<td class=\"bar\"><span style=\"width:{:.1}%\"></span><td>{}<td>{}</tr>",
                escape(&key.shown()),
                words::count(key.requests),
                words::count(key.denied),
                words::percent(percent(key.denied, key.requests)),
                percent(key.denied, most),
                words::duration(key.longest_stretch),
                words::duration(key.longest_wait),
            );
        }
        put!(
            self,
            "</table></div><p class=\"note\">Longest refusal: from one refusal to a later one, with nothing let through in between. Longest wait: what the limiter told them to wait, at most.</p></div>"
        );
    }

    fn smallest(&mut self, policy: &PolicyOutcome) {
        let Some(found) = policy.smallest.as_ref().filter(|found| !found.is_empty()) else { return };
        let who = self.outcome.key_word();
        put!(
            self,
            "<div class=\"card\"><h3>The smallest limit that would have refused</h3><div class=\"wide\"><table class=\"left\">"
        );
        put!(
            self,
            "<tr><th>in place of<th>nothing<th>at most 1 % of the requests<th>something to at most 1 % of the {}</tr>",
            escape(&who)
        );
        for found in found {
            let cell = |smallest| escape(&words::smallest(found, smallest));
            put!(
                self,
                "<tr><td>the {} of <code>{}</code><td><code>{}</code><td><code>{}</code><td><code>{}</code></tr>",
                found.axis.name(),
                escape(&found.limit.to_string()),
                cell(&found.nobody),
                cell(&found.percent_of_requests),
                cell(&found.percent_of_keys)
            );
        }
        let alone = if policy.policy.limits().len() > 1 { " Each limit of the policy is taken alone." } else { "" };
        put!(
            self,
            "</table></div><p class=\"note\">Whole numbers, each tried on the whole log with the rest of the limit unchanged.{alone}</p></div>"
        );
    }

    fn files(&mut self) {
        let outcome = self.outcome;
        put!(self, "<section class=\"card\"><h3>What was read</h3><div class=\"wide\"><table>");
        put!(self, "<tr><th>log<th>format<th>lines<th>unreadable<th>out of order<th>too late</tr>");
        for file in &outcome.files {
            put!(
                self,
                "<tr><td class=\"name\">{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
                escape(&show::line(file.name.as_bytes())),
                file.format.name(),
                words::count(file.lines),
                words::count(file.unreadable),
                words::count(file.out_of_order),
                words::count(file.late)
            );
            if let Some(damage) = &file.damage {
                put!(self, "<tr><td colspan=\"6\" class=\"bad\">not read to its end: {}</tr>", escape(damage));
            }
        }
        put!(self, "</table></div>");
        if !outcome.unreadable_lines.is_empty() {
            put!(self, "<ul>");
            for line in &outcome.unreadable_lines {
                let file = if outcome.files.len() > 1 {
                    format!("{}, ", outcome.files[line.file].name)
                } else {
                    String::new()
                };
                put!(
                    self,
                    "<li>{}line {}: {}</li>",
                    escape(&show::line(file.as_bytes())),
                    words::count(line.line),
                    escape(&line.cause)
                );
            }
            put!(self, "</ul>");
        }
        let window = words::duration(outcome.reorder);
        put!(
            self,
            "<p class=\"note\">Requests up to {window} out of order were put in their place; later ones were taken at the latest time already replayed.</p></section>"
        );
    }
}

/// The colours, light and dark. Blue and orange are told apart by everybody.
const COLORS: &str = "\
:root{--ground:#f4f6f8;--card:#fff;--text:#17212b;--soft:#566473;--line:#dfe5ea;--pass:#3f86b8;--refuse:#d4500c;--bad:#b42318}\
@media(prefers-color-scheme:dark){:root{--ground:#0f151b;--card:#18212a;--text:#e4eaf0;--soft:#98a6b4;--line:#2b3742;--pass:#5aa2d4;--refuse:#ff8b4d;--bad:#ff9d92}}";

const CHART: &str = "\
svg .heading{fill:var(--soft);font:13px system-ui,sans-serif}\
svg .tick{fill:var(--soft);font:11px system-ui,sans-serif;font-variant-numeric:tabular-nums}svg .day{opacity:.75}\
svg .grid{stroke:var(--line);stroke-width:1;fill:none}svg .base{stroke:var(--soft);stroke-width:1;fill:none}\
svg .pass{fill:var(--pass)}svg .refuse{fill:var(--refuse)}svg g:hover path{opacity:.7}";

const PAGE: &str = "\
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--text);font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\
main{max-width:1080px;margin:0 auto;padding:28px 20px 48px}header p{color:var(--soft);margin:0}\
.brand{letter-spacing:.08em;text-transform:uppercase;font-size:12px}h1{font-size:26px;line-height:1.25;margin:4px 0 6px;overflow-wrap:anywhere}\
h2{font-size:18px;margin:32px 0 12px}h3{font-size:15px;margin:0 0 10px}.card>h2{margin-top:0}\
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:16px 0}\
.wide{overflow-x:auto}.wide svg{display:block;width:100%;min-width:560px;height:auto}\
.legend{margin:0 0 6px;color:var(--soft);font-size:13px}.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin:0 6px 0 12px}\
.key:first-child{margin-left:0}.key.pass{background:var(--pass)}.key.refuse{background:var(--refuse)}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(155px,1fr));gap:12px;margin:0}\
.figures div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}\
dt{color:var(--soft);font-size:13px}dd{margin:0;font-size:22px;font-weight:600;font-variant-numeric:tabular-nums}\
.note,dd.note{color:var(--soft);font-size:13px;font-weight:400;overflow-wrap:anywhere}p.note{margin:10px 0 0}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th{color:var(--soft);font-weight:400;font-size:13px}\
th,td{text-align:right;white-space:nowrap;padding:6px 0 6px 18px;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}\
th:first-child,td:first-child,.left th,.left td{text-align:left}th:first-child,td:first-child{padding-left:0}\
td.name{white-space:normal;overflow-wrap:anywhere;min-width:130px}.bar{width:22%;min-width:70px}td.bar span{display:block;height:9px;margin-top:7px;border-radius:2px;background:var(--refuse)}\
td.bad{color:var(--bad);white-space:normal}@media(max-width:640px){main{padding:20px 12px 36px}h1{font-size:21px}.card{padding:14px}.bar{display:none}}code{font:.93em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}ul{margin:12px 0 0;padding-left:20px;color:var(--soft);overflow-wrap:anywhere}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_a_log_becomes_markup() {
        assert_eq!(escape("<script>\"&'"), "&lt;script&gt;&quot;&amp;&#39;");
    }
}
