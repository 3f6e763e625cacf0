use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{RunEntry, child_id};
use crate::provider::HistoryTurn;
use crate::types::{Extra, SessionTurn, Timestamp, ToolResultBlock, TurnUsage};

/// The format of entries that this version writes, and the newest it reads. Raised when an older version could no
/// longer make sense of them; what is only added does not raise it.
pub const ENTRY_FORMAT: u32 = 1;

/// The unit in which a session is stored. Never changed once it is stored; each has an id that is its own in the
/// session.
///
/// Serializes as one JSON object with its `kind`. A kind that this version does not know is kept as it is; a known one
/// that cannot be read is an error.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionEntry {
    /// A turn. Its id is the turn's.
    Turn(Arc<HistoryTurn>),
    /// The final result of one call.
    Result(ResultEntry),
    /// A run began or ended.
    Run(Box<RunEntry>),
    /// A repair settled what an earlier run had left.
    Repair(RepairEntry),
    /// A summary stands in for the turns up to a place.
    Summary(SummaryEntry),
    /// The words that stand in for an image where a model cannot see it.
    Vision(Box<VisionEntry>),
    /// The host's own notes.
    Metadata(MetadataEntry),
    /// Of a newer version.
    Unknown(UnknownEntry),
}

/// The result of one call. The results turn of an assistant turn is the fold of these, in call order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResultEntry {
    /// The entry's id, derived from turn and call.
    pub id: String,
    /// The turn that made the call.
    pub turn_id: String,
    /// The run that settled it.
    pub run_id: String,
    /// When it was final.
    pub at: Timestamp,
    /// The result.
    pub result: Arc<ToolResultBlock>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a repair did. The results it made up are entries of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RepairEntry {
    /// The entry's id, derived from the turn.
    pub id: String,
    /// The turn whose calls were left open.
    pub turn_id: String,
    /// The run that repaired it.
    pub run_id: String,
    /// When.
    pub at: Timestamp,
    /// Calls that got a made-up result.
    pub answered: Vec<String>,
    /// Calls whose results were left out because nothing had asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A summary of everything up to a turn. The turns themselves stay in the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SummaryEntry {
    /// The entry's id: the id of its turn.
    pub id: String,
    /// The last turn it stands in for.
    pub through: String,
    /// The turn that is sent instead.
    pub turn: Arc<HistoryTurn>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The description of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VisionEntry {
    /// The entry's id, derived from the digest.
    pub id: String,
    /// Digest of the image's bytes.
    pub digest: String,
    /// What it shows.
    pub text: String,
    /// The run that had it described.
    pub run_id: String,
    /// When.
    pub at: Timestamp,
    /// What describing it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Notes of the host: each key gets this value, whatever it had; `null` removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MetadataEntry {
    /// The entry's id, chosen by the host.
    pub id: String,
    /// The notes.
    pub values: Map<String, Value>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An entry of a kind that this version does not know, as it was stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UnknownEntry {
    /// The entry's id.
    pub id: String,
    /// All of it.
    pub value: Map<String, Value>,
}

impl SessionEntry {
    /// A turn.
    pub fn turn(turn: impl Into<Arc<HistoryTurn>>) -> Self {
        Self::Turn(turn.into())
    }

    /// Notes of the host. `id` is any that the session does not have yet.
    pub fn metadata(id: impl Into<String>, values: Map<String, Value>) -> Self {
        Self::Metadata(MetadataEntry { id: id.into(), values, extra: Extra::default() })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Turn(turn) => &turn.id,
            Self::Result(entry) => &entry.id,
            Self::Run(entry) => &entry.id,
            Self::Repair(entry) => &entry.id,
            Self::Summary(entry) => &entry.id,
            Self::Vision(entry) => &entry.id,
            Self::Metadata(entry) => &entry.id,
            Self::Unknown(entry) => &entry.id,
        }
    }

    /// Whether two entries are stored as the same thing. Wider than `==`: a value that is `null` and one that is
    /// missing read the same once stored.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        self == other
            || match (stored(self), stored(other)) {
                (Some(one), Some(two)) => one == two,
                _ => false,
            }
    }
}

/// The entry as it comes back from a store.
fn stored(entry: &SessionEntry) -> Option<SessionEntry> {
    serde_json::to_value(entry).and_then(serde_json::from_value).ok()
}

impl From<SessionTurn> for SessionEntry {
    fn from(turn: SessionTurn) -> Self {
        Self::turn(HistoryTurn::new(turn))
    }
}

impl ResultEntry {
    /// The result of a call of the turn `turn_id`, settled by `run_id`.
    pub fn new(
        turn_id: impl Into<String>,
        run_id: impl Into<String>,
        at: Timestamp,
        result: impl Into<Arc<ToolResultBlock>>,
    ) -> Self {
        let (turn_id, result) = (turn_id.into(), result.into());
        let id = child_id(&turn_id, &format!("result/{}", result.call_id)).to_string();
        Self { id, turn_id, run_id: run_id.into(), at, result, extra: Extra::default() }
    }
}

impl RepairEntry {
    /// The repair of the turn `turn_id` by the run `run_id`.
    pub fn new(
        turn_id: impl Into<String>,
        run_id: impl Into<String>,
        at: Timestamp,
        answered: Vec<String>,
        dropped: Vec<String>,
    ) -> Self {
        let turn_id = turn_id.into();
        let id = child_id(&turn_id, "repair").to_string();
        Self { id, turn_id, run_id: run_id.into(), at, answered, dropped, extra: Extra::default() }
    }
}

impl SummaryEntry {
    /// A turn that stands in for everything up to and with the turn `through`.
    pub fn new(through: impl Into<String>, turn: impl Into<Arc<HistoryTurn>>) -> Self {
        let turn = turn.into();
        Self { id: turn.id.clone(), through: through.into(), turn, extra: Extra::default() }
    }
}

impl VisionEntry {
    /// What the image with this digest shows.
    pub fn new(
        digest: impl Into<String>,
        text: impl Into<String>,
        run_id: impl Into<String>,
        at: Timestamp,
        usage: Option<TurnUsage>,
    ) -> Self {
        let digest = digest.into();
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("vision/{digest}").as_bytes()).to_string();
        Self { id, digest, text: text.into(), run_id: run_id.into(), at, usage, extra: Extra::default() }
    }
}

macro_rules! kinds {
    ($($kind:literal $variant:ident $stored:ty;)+) => {
        impl Serialize for SessionEntry {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[derive(Serialize)]
                #[serde(tag = "kind")]
                enum Tagged<'a> {
                    $(#[serde(rename = $kind)] $variant(&'a $stored),)+
                }
                match self {
                    $(Self::$variant(entry) => Tagged::$variant(entry).serialize(serializer),)+
                    Self::Unknown(entry) => entry.value.serialize(serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for SessionEntry {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut value = Map::deserialize(deserializer)?;
                // Told apart by hand: a known kind that is damaged must not pass as an unknown one.
                let kind = match value.get("kind") {
                    Some(Value::String(kind)) => kind.clone(),
                    _ => return Err(D::Error::missing_field("kind")),
                };
                match kind.as_str() {
                    $($kind => {
                        value.remove("kind");
                        <$stored>::deserialize(Value::Object(value)).map(Self::$variant).map_err(D::Error::custom)
                    })+
                    _ => match value.get("id") {
                        Some(Value::String(id)) => Ok(Self::Unknown(UnknownEntry { id: id.clone(), value })),
                        _ => Err(D::Error::missing_field("id")),
                    },
                }
            }
        }
    };
}

kinds! {
    "turn" Turn Arc<HistoryTurn>;
    "result" Result ResultEntry;
    "run" Run Box<RunEntry>;
    "repair" Repair RepairEntry;
    "summary" Summary SummaryEntry;
    "vision" Vision Box<VisionEntry>;
    "metadata" Metadata MetadataEntry;
}
