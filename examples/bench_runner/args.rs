/// How the model is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Anthropic,
    OpenAi,
    InMemory,
}

impl Api {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::InMemory => "inproc",
        }
    }
}

/// The command line.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) scenario: String,
    /// Scheme, host and port.
    pub(crate) base: String,
    pub(crate) api: Api,
    /// The model's name is the script it follows.
    pub(crate) model: String,
    pub(crate) runs: usize,
    pub(crate) warmup: usize,
    /// Agents at a time.
    pub(crate) concurrency: usize,
    pub(crate) tool_sleep_ms: u64,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            scenario: "s7".to_owned(),
            base: String::new(),
            api: Api::InMemory,
            model: "loop-50-20".to_owned(),
            runs: 1,
            warmup: 0,
            concurrency: 1,
            tool_sleep_ms: 0,
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--scenario" => args.scenario = value,
                "--base" => args.base = value,
                "--model" => args.model = value,
                "--runs" => args.runs = number(&name, &value)?,
                "--warmup" => args.warmup = number(&name, &value)?,
                "--concurrency" => args.concurrency = number(&name, &value)?,
                "--tool-sleep-ms" => args.tool_sleep_ms = number(&name, &value)?,
                "--api" => {
                    args.api = [Api::Anthropic, Api::OpenAi, Api::InMemory]
                        .into_iter()
                        .find(|api| api.as_str() == value)
                        .ok_or_else(|| format!("unknown api {value}"))?;
                }
                _ => return Err(format!("unknown argument {name}")),
            }
        }
        if args.api != Api::InMemory && args.base.is_empty() {
            return Err("--base is needed for an api over HTTP".to_owned());
        }
        Ok(args)
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}: {value} is no number"))
}
