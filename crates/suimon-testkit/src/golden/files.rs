//! The scenarios that come with the crate, and the macro that mounts them.

use super::parse::parse;
use super::report::Report;
use super::runner::run;
use super::scenario::Scenario;
use super::subject::Subject;

/// A scenario file that comes with the crate.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its name without the ending.
    pub name: &'static str,
    /// What stands in it.
    pub text: &'static str,
}

impl File {
    /// The scenarios in it.
    ///
    /// # Panics
    /// When it cannot be read, which the crate's own tests rule out.
    #[must_use]
    pub fn scenarios(&self) -> Vec<Scenario> {
        match parse(&format!("{}.txt", self.name), self.text) {
            Ok(scenarios) => scenarios,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs every scenario that comes with the crate.
pub fn conformance(subject: &mut dyn Subject) -> Report {
    let all: Vec<Scenario> = FILES.iter().flat_map(File::scenarios).collect();
    run(subject, &all)
}

/// Runs the scenarios of one file; what [`conformance!`](crate::conformance!) mounts.
///
/// # Panics
/// When there is no file of that name.
pub fn conformance_of(subject: &mut dyn Subject, name: &str) -> Report {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => run(subject, &file.scenarios()),
        None => panic!("there is no scenario file `{name}`"),
    }
}

/// Names every file once: for the list, and for the tests of the macro.
macro_rules! scenario_files {
    ($($name:ident),* $(,)?) => {
        /// All scenario files that come with the crate.
        pub const FILES: &[File] = &[
            $(File { name: stringify!($name), text: include_str!(concat!("../../scenarios/", stringify!($name), ".txt")) },)*
        ];
    };
}

scenario_files!(
    vectors_pace,
    vectors_savings,
    vectors_bucket,
    vectors_bucket_time,
    vectors_reserve,
    cases_bucket,
    cases_window,
    cases_clock,
    cases_config,
    settle,
    change,
    policies,
    fixed,
);

/// Mounts the conformance suite: a module with one `#[test]` for each scenario
/// file, in which `$subject` is evaluated anew.
///
/// What the subject lacks has to be declared, as names of
/// [`Feature`](crate::golden::Feature)s:
///
/// ```
/// # use suimon_testkit::subjects::ModelSubject;
/// suimon_testkit::conformance!(model, ModelSubject::exact());
/// suimon_testkit::conformance!(model_again, ModelSubject::exact(), lacks: []);
/// ```
#[macro_export]
macro_rules! conformance {
    ($module:ident, $subject:expr) => {
        $crate::conformance!($module, $subject, lacks: []);
    };
    ($module:ident, $subject:expr, lacks: [$($feature:ident),* $(,)?]) => {
        $crate::conformance!(
            @tests $module, $subject, [$($feature),*],
            vectors_pace vectors_savings vectors_bucket vectors_bucket_time vectors_reserve
            cases_bucket cases_window cases_clock cases_config
            settle change policies fixed
        );
    };
    (@tests $module:ident, $subject:expr, $features:tt, $($file:ident)*) => {
        #[cfg(test)]
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $file() {
                    let mut subject = $subject;
                    let report = $crate::golden::conformance_of(&mut subject, stringify!($file));
                    report.assert_passed(&$crate::conformance!(@features $features));
                }
            )*

            #[test]
            fn every_file_is_mounted() {
                let mounted = [$(stringify!($file)),*];
                let files: ::std::vec::Vec<&str> = $crate::golden::FILES.iter().map(|file| file.name).collect();
                assert_eq!(files, mounted);
            }
        }
    };
    (@features [$($feature:ident),*]) => {
        [$($crate::golden::Feature::$feature),*]
    };
}
