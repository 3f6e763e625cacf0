/// Runs a check on a runtime of its own.
///
/// # Panics
/// When no runtime can be made, and when the check fails.
#[allow(clippy::panic, reason = "a failed check is a failed test")]
pub fn run_check(check: impl Future<Output = ()>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(check),
        Err(error) => panic!("no runtime for the check: {error}"),
    }
}

/// One `#[test]` per check, in a module. Each makes a thing of its own and hands it to the check.
#[macro_export]
#[doc(hidden)]
macro_rules! __conformance {
    ($name:ident, $make:expr, $room:ident: $($check:ident)+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[test]
                fn $check() {
                    $crate::testing::run_check(async {
                        let made = $make;
                        $crate::testing::$room::$check(&made).await;
                    });
                }
            )+
        }
    };
}
