use alloc::format;
use alloc::string::String;
use core::num::NonZeroU64;
use core::time::Duration;

use super::UNITS;
use super::words::{Word, list, suggestion};
use crate::cost::Cost;
use crate::error::{Error, OutOfRange};
use crate::int;
use crate::quota::Quota;

/// `60/min`: whole tokens in a period.
pub(super) fn quota(word: Word<'_>) -> Result<Quota, Error> {
    let (amount, per) = amount_per(word)?;
    let period = period(per)?;
    if amount.text.contains('.') {
        let cost = cost(amount)?;
        return Err(Error::syntax(amount.at, "a rate has whole tokens").suggest(in_whole_tokens(cost, period)));
    }
    let tokens = whole(amount)?;
    Quota::new(tokens, period).map_err(|range| Error::from(range).within_text(word.at))
}

/// The two sides of `amount/period`.
pub(super) fn amount_per(word: Word<'_>) -> Result<(Word<'_>, Word<'_>), Error> {
    word.split_slash().ok_or_else(|| {
        let (digits, rest) = word.split_where(|c| c.is_ascii_digit() || c == '_');
        let error = Error::syntax(word.at, "a rate is a number, a slash and a period");
        if rest.text.is_empty() && (1..=20).contains(&digits.text.len()) {
            error.suggest(format!("`{0}/s` or `{0}/min`", word.text))
        } else {
            error.suggest("`60/min`")
        }
    })
}

/// Half a token a second is one token each two seconds.
fn in_whole_tokens(cost: Cost, period: Duration) -> String {
    let exact = NonZeroU64::new(int::saturate(cost.billionths())).map(|tokens| {
        let common = int::gcd(tokens, BILLION);
        let times = int::div(BILLION.get(), common);
        format!(
            "`{}/{}`",
            int::div(tokens.get(), common),
            super::Period(Duration::from_nanos(int::nanos(period).saturating_mul(times)))
        )
    });
    exact.unwrap_or_else(|| "`1/2s` for one token each two seconds".into())
}

const BILLION: NonZeroU64 = NonZeroU64::MIN.saturating_add(int::NANOS_PER_SEC - 1);

/// `min`, `60s`.
pub(super) fn period(word: Word<'_>) -> Result<Duration, Error> {
    let (count, unit) = word.split_where(|c| c.is_ascii_digit() || c == '_');
    let count = if count.text.is_empty() { 1 } else { whole(count)? };
    let nanos = unit_nanos(unit)?;
    match count.checked_mul(nanos) {
        Some(nanos) => Ok(Duration::from_nanos(nanos)),
        None => Err(Error::from(OutOfRange::period(Duration::MAX)).within_text(word.at)),
    }
}

fn unit_nanos(unit: Word<'_>) -> Result<u64, Error> {
    if let Some((_, nanos)) = UNITS.iter().find(|(names, _)| names.contains(&unit.text)) {
        return Ok(*nanos);
    }
    let names = UNITS.map(|(names, _)| names.first().copied().unwrap_or_default());
    let error = |message: &str| Error::syntax(unit.at, message);
    Err(match unit.text {
        "" => error("the unit of the period is missing").suggest(list(&names)),
        "m" => error("`m` may mean minutes or months").suggest("`min`, or `month` in a `fixed` limit"),
        "w" => error("`w` is no unit").suggest("`week`"),
        "y" => error("`y` is no unit").suggest("`year`"),
        "month" | "months" => error("months differ in length; only a `fixed` limit counts them, one at a time")
            .suggest("`fixed 1000/month`, or a number of days such as `30day`"),
        _ if unit.text.starts_with('.') => {
            error("a period has no fraction").suggest("a smaller unit, such as `1500ms` for `1.5s`")
        }
        text => {
            Error::syntax(unit.at, format!("`{}` is no unit of time", shown(text))).suggest(suggestion(text, &names))
        }
    })
}

/// A decimal amount of tokens.
pub(super) fn cost(word: Word<'_>) -> Result<Cost, Error> {
    word.text.parse::<Cost>().map_err(|error| error.within_text(word.at))
}

/// A whole number.
pub(super) fn whole(word: Word<'_>) -> Result<u64, Error> {
    let cost = cost(word)?;
    if cost.subsec_nanos() > 0 || word.text.contains('.') {
        return Err(Error::syntax(word.at, format!("`{}` must be a whole number", shown(word.text))));
    }
    Ok(cost.as_whole())
}

/// The beginning of a word, so that an error stays short.
pub(super) fn shown(text: &str) -> &str {
    match text.char_indices().nth(40) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}
