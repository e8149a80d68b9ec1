//! What came of a run.

use std::collections::BTreeMap;
use std::fmt;

use super::runner::Tally;
use super::subject::Feature;

/// What came of all scenarios with one subject.
#[derive(Clone, Debug)]
pub struct Report {
    subject: String,
    scenarios: Vec<ScenarioReport>,
    calls: u64,
    compared: u64,
    untold: u64,
}

/// What came of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioReport {
    /// The file that it stands in.
    pub file: String,
    /// The line of its name.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// What came of it.
    pub result: Result,
}

/// Passed, failed, or could not be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Result {
    /// Every answer was right.
    Passed,
    /// An answer was wrong; what comes after it was not run.
    Failed {
        /// The line of the step.
        line: usize,
        /// What was expected, and what came.
        message: String,
    },
    /// The subject lacks something; what comes after it was not run.
    Unsupported {
        /// The line of the step.
        line: usize,
        /// What it lacks.
        feature: Feature,
    },
}

impl Report {
    pub(super) fn of(subject: String) -> Report {
        Report { subject, scenarios: Vec::new(), calls: 0, compared: 0, untold: 0 }
    }

    pub(super) fn add(&mut self, scenario: ScenarioReport, tally: Tally) {
        self.scenarios.push(scenario);
        self.calls += tally.calls;
        self.compared += tally.compared;
        self.untold += tally.untold;
    }

    /// All scenarios in the order of the run.
    #[must_use]
    pub fn scenarios(&self) -> &[ScenarioReport] {
        &self.scenarios
    }

    /// How many scenarios passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.scenarios.iter().filter(|scenario| scenario.result == Result::Passed).count()
    }

    /// The scenarios with a wrong answer.
    pub fn failures(&self) -> impl Iterator<Item = &ScenarioReport> {
        self.scenarios.iter().filter(|scenario| matches!(scenario.result, Result::Failed { .. }))
    }

    /// How many scenarios could not be judged, by what the subject lacks.
    #[must_use]
    pub fn unsupported(&self) -> BTreeMap<Feature, usize> {
        let mut features = BTreeMap::new();
        for scenario in &self.scenarios {
            if let Result::Unsupported { feature, .. } = scenario.result {
                *features.entry(feature).or_default() += 1;
            }
        }
        features
    }

    /// Calls made to the subject.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Fields of answers that were compared.
    #[must_use]
    pub fn fields_compared(&self) -> u64 {
        self.compared
    }

    /// Fields that a scenario names and the subject could not tell.
    #[must_use]
    pub fn fields_untold(&self) -> u64 {
        self.untold
    }

    /// Panics with the whole report unless every scenario passed, save those
    /// that need a feature of `lacks`.
    ///
    /// What is lacking has to be said here, so that a verb which stops being
    /// served is noticed.
    ///
    /// # Panics
    /// When an answer was wrong, or something is unsupported that `lacks` does
    /// not name.
    pub fn assert_passed(&self, lacks: &[Feature]) {
        let undeclared = self.unsupported().into_keys().find(|feature| !lacks.contains(feature));
        if let Some(feature) = undeclared {
            panic!("{self}\n{} does not support {feature:?} and was not said to lack it", self.subject);
        }
        assert!(self.failures().next().is_none(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} scenarios passed, {} calls, {} fields compared, {} untold",
            self.subject,
            self.passed(),
            self.scenarios.len(),
            self.calls,
            self.compared,
            self.untold
        )?;
        for (feature, count) in self.unsupported() {
            write!(f, "\n  not judged: {count} that need {feature:?}")?;
        }
        for scenario in self.failures() {
            if let Result::Failed { line, message } = &scenario.result {
                write!(f, "\n  {}:{line}: {}: {message}", scenario.file, scenario.name)?;
            }
        }
        Ok(())
    }
}
