use std::sync::Arc;

use super::OpenAi;
use super::profile::ResponsesProfile;
use crate::provider::http::{Http, HttpOptions};
use crate::provider::openai_chat::KeyHeader;
use crate::provider::{ProviderError, ProviderErrorKind, Secret};

/// Builds an [`OpenAi`].
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenAiBuilder {
    profile: ResponsesProfile,
    key: Option<Secret>,
    http: HttpOptions,
}

impl OpenAiBuilder {
    pub(super) fn new() -> Self {
        Self { profile: ResponsesProfile::openai(), key: None, http: HttpOptions::default() }
    }

    /// The vendor. Default: [`ResponsesProfile::openai`].
    pub fn profile(mut self, profile: ResponsesProfile) -> Self {
        self.profile = profile;
        self
    }

    /// The key. Default: what the profile's environment variable holds.
    pub fn api_key(mut self, key: impl Into<Secret>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The address up to and without `/responses`. Default: the profile's. Set the profile first.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.profile.base_url = url.into().into();
        self
    }

    /// The client to use instead of the one that providers share.
    pub fn client(mut self, client: reqwest::Client) -> Self {
        self.http.client = Some(client);
        self
    }

    /// Adds a header to every request. Its value is treated as a secret.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.http.headers.push((name.into(), value.into()));
        self
    }

    /// Timeouts, limits, client and headers, all at once.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Builds the provider. Nothing is sent.
    ///
    /// # Errors
    /// `Auth` when the vendor needs a key and there is none; `Invalid` when the address or a header is none.
    pub fn build(self) -> Result<OpenAi, ProviderError> {
        let Self { profile, key, http } = self;
        let from_env = || profile.key_var.as_deref().and_then(|name| std::env::var(name).ok()).map(Secret::new);
        let key = key.or_else(from_env).filter(|key| !key.is_empty());
        if key.is_none() && profile.key_required {
            let message = match profile.key_var.as_deref() {
                Some(name) => format!("no API key: {name} is not set"),
                None => "no API key was given".to_owned(),
            };
            return Err(ProviderError::new(ProviderErrorKind::Auth, &*profile.id, message));
        }
        let http = Http::new(&profile.id, http, key.as_ref());
        let mut url = http.url(profile.base_url.trim())?;
        let path = format!("{}/responses", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let header = key.map(|key| match profile.key_header {
            KeyHeader::Bearer => ("authorization", Secret::new(format!("Bearer {}", key.expose()))),
            KeyHeader::ApiKey => ("api-key", key),
        });
        let headers: Vec<_> = header.iter().map(|(name, value)| (*name, value)).collect();
        let headers = http.headers(&headers)?;
        // Two profiles with one name may differ in what they send.
        let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{profile:?}").as_bytes());
        let wire = format!("openai-responses/{}/{}", profile.id, digest.simple()).into();
        Ok(OpenAi { profile: Arc::new(profile), http, url, headers, wire })
    }
}
