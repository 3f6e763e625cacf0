//! stub
use super::fields::Fields;
use super::findings::Findings;
pub fn judge(_case: &mut Fields<'_>, findings: &mut Findings) {
    findings.need("scenario");
}
