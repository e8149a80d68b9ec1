//! What stands between the parentheses of the attribute.

use std::mem;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Ident, Lit, LitBool, LitStr, Token};

use crate::limit_text;

const NAMES: [&str; 6] = ["limiter", "cost", "wait", "within", "deadline", "or"];

/// The options, checked as far as they can be without the function.
pub(crate) struct Options {
    pub(crate) limiter: Limiter,
    pub(crate) cost: Option<Expr>,
    pub(crate) within: Option<Expr>,
    pub(crate) deadline: Option<Expr>,
    pub(crate) or: Option<Expr>,
    /// Where a refusal has been made possible: the name of the option.
    pub(crate) refuses: Option<Ident>,
    pub(crate) wait: bool,
}

/// Who decides.
pub(crate) enum Limiter {
    /// One limiter for the function, of this text.
    Inline(LitStr),
    /// Whatever the expression gives.
    Given(Expr),
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Options, Error> {
        let mut given = Given::default();
        while !input.is_empty() {
            given.read(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        given.checked()
    }
}

/// The options as they are read, one by one.
#[derive(Default)]
struct Given {
    text: Option<LitStr>,
    names: Vec<Ident>,
    limiter: Option<Expr>,
    cost: Option<Expr>,
    within: Option<Expr>,
    deadline: Option<Expr>,
    or: Option<Expr>,
    wait: Option<LitBool>,
}

impl Given {
    fn read(&mut self, input: ParseStream<'_>) -> Result<(), Error> {
        if input.peek(LitStr) {
            return self.read_text(input.parse()?);
        }
        if !input.peek(Ident::peek_any) {
            return Err(
                input.error("an option is written `name = value`; only a limit such as \"pace 60/min\" has no name")
            );
        }
        let name = input.call(Ident::parse_any)?;
        let Some(known) = NAMES.into_iter().find(|known| name == known) else {
            return Err(Error::new(name.span(), unknown(&name, input.peek(Token![=]))));
        };
        if self.names.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice; give it once")));
        }
        if !input.peek(Token![=]) {
            return Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = {}`", example(known))));
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = {}`", example(known))));
        }
        self.names.push(name);
        match known {
            "limiter" => self.limiter = Some(limiter(input)?),
            "cost" => self.cost = Some(input.parse()?),
            "within" => self.within = Some(input.parse()?),
            "deadline" => self.deadline = Some(input.parse()?),
            "or" => self.or = Some(input.parse()?),
            _ => self.wait = Some(yes_or_no(input)?),
        }
        Ok(())
    }

    fn read_text(&mut self, text: LitStr) -> Result<(), Error> {
        if self.text.is_some() {
            return Err(Error::new(text.span(), "one limit text is enough; join limits with `and` in one text"));
        }
        if !self.names.is_empty() {
            return Err(Error::new(text.span(), "the limit text comes first, before the options"));
        }
        self.text = Some(text);
        Ok(())
    }

    fn checked(mut self) -> Result<Options, Error> {
        let limiter = match (self.text.take(), self.limiter.take()) {
            (Some(text), None) => {
                limit_text::check(&text)?;
                Limiter::Inline(text)
            }
            (None, Some(limiter)) => Limiter::Given(limiter),
            (Some(_), Some(_)) => {
                return Err(Error::new(
                    self.span_of("limiter"),
                    "give a limit text or a `limiter`, not both: the text makes a limiter of its own",
                ));
            }
            (None, None) => {
                return Err(Error::new(
                    Span::call_site(),
                    "a limiter is missing: write a limit, `#[suimon::consume(\"pace 60/min\")]`, \
                     or name a limiter, `#[suimon::consume(limiter = self.limiter)]`",
                ));
            }
        };
        let wait = self.wait.as_ref().is_none_or(LitBool::value);
        let bound = self.names.iter().find(|name| *name == "within" || *name == "deadline");
        if let (false, Some(bound)) = (wait, bound) {
            return Err(Error::new(
                bound.span(),
                format!(
                    "`wait = false` refuses at once, so there is no wait that `{bound}` could end; leave out one of them"
                ),
            ));
        }
        let refuses = if wait { bound } else { self.names.iter().find(|name| *name == "wait") }.cloned();
        let Given { cost, within, deadline, or, .. } = self;
        Ok(Options { limiter, cost, within, deadline, or, refuses, wait })
    }

    fn span_of(&self, option: &str) -> Span {
        self.names.iter().find(|name| *name == option).map_or_else(Span::call_site, Ident::span)
    }
}

fn limiter(input: ParseStream<'_>) -> Result<Expr, Error> {
    let limiter: Expr = input.parse()?;
    match &limiter {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Err(Error::new(
            text.span(),
            format!("`limiter` takes a limiter; a limit text has no name: `#[suimon::consume({:?})]`", text.value()),
        )),
        _ => Ok(limiter),
    }
}

fn yes_or_no(input: ParseStream<'_>) -> Result<LitBool, Error> {
    let value: Expr = input.parse()?;
    match value {
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Ok(value),
        other => Err(Error::new_spanned(
            other,
            "`wait` is `true` or `false`, written out: it decides how the function is compiled",
        )),
    }
}

fn unknown(name: &Ident, has_value: bool) -> String {
    let typed = name.to_string();
    if !has_value {
        return format!("`{typed}` is no option; if it is the limiter, write `limiter = {typed}`");
    }
    let near = NAMES.into_iter().map(|known| (distance(&typed, known), known)).min();
    match near {
        Some((distance, known)) if distance <= 2 && distance < known.len() => {
            format!("there is no option `{typed}`; did you mean `{known}`?")
        }
        _ => format!("there is no option `{typed}`; there are `{}`", NAMES.join("`, `")),
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "limiter" => "self.limiter",
        "cost" => "text.len()",
        "wait" => "false",
        "within" => "Duration::from_secs(2)",
        "deadline" => "request.deadline",
        _ => "None",
    }
}

/// Insertions, deletions and changes from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above_first, typed) in from.chars().take(64).enumerate() {
        let mut diagonal = mem::replace(&mut row[0], above_first + 1);
        for (column, target) in to.iter().enumerate() {
            let above = row[column + 1];
            row[column + 1] = (diagonal + usize::from(typed != *target)).min(above + 1).min(row[column] + 1);
            diagonal = above;
        }
    }
    row[to.len()]
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
