use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::decision::{DecisionLimits, JsonLimits};

/// Which of the two contracts a server speaks. The address does not tell: some speak System One at `/v1/decisions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecisionContract {
    /// OpenAI's: `input` and a list of questions.
    OpenAi,
    /// System One: `state` and questions by name.
    SystemOne,
}

/// How a server takes images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecisionImages {
    /// Not at all.
    None,
    /// As parts of the evidence.
    Parts,
    /// As `assets` in base64, PNG or JPEG, which placeholders in the state stand for (System One).
    Assets,
    /// As a list of data URLs beside the state (System One).
    DataUrls,
}

/// A server of decisions, as data: contract, address, key, images, limits. Facts as of 1 December 2026.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecisionProfile {
    /// The name under which usage and errors are filed.
    pub id: Cow<'static, str>,
    /// What it speaks.
    pub contract: DecisionContract,
    /// The address without the path.
    pub base_url: Cow<'static, str>,
    /// The path below the address.
    pub path: Cow<'static, str>,
    /// The environment variable that holds the key.
    pub key_var: Option<Cow<'static, str>>,
    /// Whether nothing is sent without a key.
    pub key_required: bool,
    /// The header of the key; `authorization` carries it as a bearer token.
    pub key_header: Cow<'static, str>,
    /// The model to ask, unless the host names one.
    pub model: Cow<'static, str>,
    /// Whether the model stands in the body.
    pub sends_model: bool,
    /// How it takes images.
    pub images: DecisionImages,
    /// Whether images may be addresses that the server fetches.
    pub image_urls: bool,
    /// A header that opts in to images. Sent only with one.
    pub image_header: Option<(Cow<'static, str>, Cow<'static, str>)>,
    /// Whether a yes-or-no question has criteria for both sides or none (System One). With one side, it is put into the
    /// question.
    pub both_sides: bool,
    /// Whether only input is priced.
    pub free_output: bool,
    /// What it takes of one request.
    pub limits: DecisionLimits,
    /// Further fields of the body.
    pub extra: Map<String, Value>,
}

impl DecisionProfile {
    fn new(id: &'static str, contract: DecisionContract, base_url: impl Into<Cow<'static, str>>) -> Self {
        Self {
            id: id.into(),
            contract,
            base_url: base_url.into(),
            path: match contract {
                DecisionContract::OpenAi => "/decisions".into(),
                DecisionContract::SystemOne => "/v1/systemone".into(),
            },
            key_var: None,
            key_required: false,
            key_header: "authorization".into(),
            model: "".into(),
            sends_model: true,
            images: DecisionImages::None,
            image_urls: false,
            image_header: None,
            both_sides: false,
            free_output: false,
            limits: DecisionLimits::default(),
            extra: Map::new(),
        }
    }

    fn key(mut self, variable: &'static str) -> Self {
        self.key_var = Some(variable.into());
        self.key_required = true;
        self
    }

    fn images(mut self, images: DecisionImages, urls: bool) -> Self {
        (self.images, self.image_urls) = (images, urls);
        self
    }

    fn questions(mut self, most: usize) -> Self {
        self.limits.questions = most;
        self
    }

    /// Any server, at an address that the path of the contract is added to: `/decisions` or `/v1/systemone`. No key, no
    /// images.
    #[must_use]
    pub fn custom(contract: DecisionContract, base_url: impl Into<String>) -> Self {
        Self::new("decisions", contract, base_url.into())
    }

    /// OpenAI, with `gpt-6-luna` and the key of `OPENAI_API_KEY`. 400 questions; JSON evidence of 256 KiB, 32 levels and
    /// 10,000 values; 128 images, also by address.
    #[must_use]
    pub fn openai() -> Self {
        let mut this = Self::new("openai", DecisionContract::OpenAi, "https://api.openai.com/v1")
            .key("OPENAI_API_KEY")
            .images(DecisionImages::Parts, true);
        this.model = "gpt-6-luna".into();
        this.free_output = true;
        this.limits.json = JsonLimits { bytes: 256 * 1024, depth: 32, values: 10_000 };
        this
    }

    /// OpenAI's on Azure: the resource's address (`https://….openai.azure.com`), the deployment as the model, and the key
    /// of `AZURE_OPENAI_API_KEY`.
    #[must_use]
    pub fn azure(resource: impl Into<String>) -> Self {
        let mut this = Self::openai().key("AZURE_OPENAI_API_KEY");
        this.id = "azure".into();
        this.base_url = resource.into().into();
        this.path = "/openai/v1/decisions".into();
        this.key_header = "api-key".into();
        this.model = "".into();
        this
    }

    /// A LiteLLM proxy, in OpenAI's contract: 128 questions.
    #[must_use]
    pub fn litellm(base_url: impl Into<String>) -> Self {
        let mut this =
            Self::custom(DecisionContract::OpenAi, base_url).images(DecisionImages::Parts, true).questions(128);
        (this.id, this.path) = ("litellm".into(), "/v1/decisions".into());
        this.key_var = Some("LITELLM_API_KEY".into());
        this
    }

    /// TypeSafe, with `jev-latest` and the key of `TYPESAFE_API_KEY`. Images are PNG or JPEG.
    #[must_use]
    pub fn typesafe() -> Self {
        let mut this = Self::new("typesafe", DecisionContract::SystemOne, "https://api.typesafe.ai")
            .key("TYPESAFE_API_KEY")
            .images(DecisionImages::Assets, false);
        this.model = "jev-latest".into();
        this.image_header = Some(("TypeSafe-Danger-Zone-Images".into(), "true".into()));
        this.free_output = true;
        this
    }

    /// A llama.cpp server, by default at its own port. What a model takes fewer of (52 options, or no images) the server
    /// says itself.
    #[must_use]
    pub fn llama_cpp() -> Self {
        let this = Self::new("llama-cpp", DecisionContract::SystemOne, "http://127.0.0.1:9931");
        this.images(DecisionImages::DataUrls, false)
    }

    /// A local Ollama of 0.35 or later.
    #[must_use]
    pub fn ollama() -> Self {
        Self::new("ollama", DecisionContract::SystemOne, "http://localhost:11434")
    }

    /// A vLLM server.
    #[must_use]
    pub fn vllm(base_url: impl Into<String>) -> Self {
        let mut this = Self::custom(DecisionContract::SystemOne, base_url).images(DecisionImages::DataUrls, false);
        this.id = "vllm".into();
        this
    }

    /// A local LM Studio.
    #[must_use]
    pub fn lm_studio() -> Self {
        let this = Self::new("lm-studio", DecisionContract::SystemOne, "http://localhost:1234");
        this.images(DecisionImages::DataUrls, false)
    }

    /// Fireworks, in System One's contract, with the key of `FIREWORKS_API_KEY`.
    #[must_use]
    pub fn fireworks() -> Self {
        Self::new("fireworks", DecisionContract::SystemOne, "https://api.fireworks.ai/inference")
            .key("FIREWORKS_API_KEY")
    }

    /// `OpenRouter`, with the key of `OPENROUTER_API_KEY`.
    #[must_use]
    pub fn openrouter() -> Self {
        let mut this = Self::new("openrouter", DecisionContract::SystemOne, "https://openrouter.ai/api")
            .key("OPENROUTER_API_KEY")
            .images(DecisionImages::Parts, true)
            .questions(200);
        this.both_sides = true;
        this
    }

    /// Clef on Cloudflare, of an account, with the key of `CLOUDFLARE_API_TOKEN`.
    #[must_use]
    pub fn cloudflare(account: &str) -> Self {
        let base = format!("https://api.cloudflare.com/client/v4/accounts/{account}");
        let mut this = Self::new("cloudflare", DecisionContract::SystemOne, base).key("CLOUDFLARE_API_TOKEN");
        this.path = "/ai/run/@cf/cloudflare/clef".into();
        this.model = "@cf/cloudflare/clef".into();
        this.sends_model = false;
        this
    }

    /// Perplexity, which speaks System One at OpenAI's path, with the key of `PERPLEXITY_API_KEY`.
    #[must_use]
    pub fn perplexity() -> Self {
        let mut this =
            Self::new("perplexity", DecisionContract::SystemOne, "https://api.perplexity.ai").key("PERPLEXITY_API_KEY");
        this.path = "/v1/decisions".into();
        this
    }

    /// Parallel, which speaks System One at OpenAI's path, with the key of `PARALLEL_API_KEY`. 100 questions, no model.
    #[must_use]
    pub fn parallel() -> Self {
        let mut this = Self::new("parallel", DecisionContract::SystemOne, "https://api.parallel.ai")
            .key("PARALLEL_API_KEY")
            .questions(100);
        this.path = "/v1/decisions".into();
        this.key_header = "x-api-key".into();
        (this.model, this.sends_model) = ("fast".into(), false);
        this.extra.insert("mode".into(), json!("fast"));
        this
    }

    /// `OpenCode` Zen, with the key of `OPENCODE_API_KEY`.
    #[must_use]
    pub fn opencode_zen() -> Self {
        Self::new("opencode-zen", DecisionContract::SystemOne, "https://opencode.ai/zen").key("OPENCODE_API_KEY")
    }

    /// What is taken of one request; no images where the wire has no place for them.
    pub(super) fn checked_limits(&self) -> DecisionLimits {
        let images = if self.images == DecisionImages::None { 0 } else { self.limits.images };
        DecisionLimits { images, ..self.limits }
    }
}
