//! One attempt at an HTTP endpoint, the same for every API: sends the request with its key, returns the answer.

use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::cancel::CancelToken;
use crate::llm::advice::{advice_about_model, advice_about_path, listed_models, model_of_body};
use crate::llm::answer_reader::{AnswerReader, error_of_failure};
use crate::llm::assembly::AnswerAssembly;
use crate::llm::clock::{AttemptClock, TOTAL_TIMEOUT};
use crate::llm::error::{LlmError, PermanentErrorKind, Spent};
use crate::llm::http::{HttpPart, HttpRequest, Transport};
use crate::llm::message::Answer;
use crate::llm::tokens::spent_so_far;
use crate::secrets::ApiKey;

/// How long a server's list of models may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// A longer list of models is not read.
const MAX_LIST: usize = 4 << 20;

/// Where a model is, and how long it may be silent.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub base_url: String,
    pub key: Option<ApiKey>,
    pub idle_timeout: Duration,
    pub cancel: CancelToken,
}

/// An endpoint with its connections.
#[derive(Debug)]
pub(super) struct EndpointClient {
    endpoint: Endpoint,
    transport: Transport,
    deadline: Option<Instant>,
}

/// A request as one API has it.
pub(super) struct EndpointRequest<'a> {
    pub url: String,
    /// Where the server lists its models.
    pub models_url: String,
    pub headers: HeaderMap,
    /// The header for the key, and the prefix of its value.
    pub key_header: (HeaderName, &'static str),
    pub body: &'a str,
}

impl EndpointClient {
    pub(super) fn new(endpoint: Endpoint) -> EndpointClient {
        EndpointClient {
            transport: Transport::new(endpoint.base_url.trim(), endpoint.idle_timeout),
            endpoint,
            deadline: None,
        }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns the base URL without a trailing slash.
    pub(super) fn base_url(&self) -> &str {
        self.endpoint.base_url.trim().trim_end_matches('/')
    }

    /// Makes one attempt. Neither the result nor what `watch` gets contains the key.
    pub(super) fn attempt(
        &mut self,
        request: EndpointRequest<'_>,
        assembly: &mut dyn AnswerAssembly,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        let Some(key) = self.endpoint.key.clone() else {
            return self.exchange(request, assembly, watch);
        };
        let mut watch_redacted = |piece: &str| match key.redact_answer(piece) {
            Some(redacted) => watch(&redacted),
            None => watch(piece),
        };
        match self.exchange(request, assembly, &mut watch_redacted) {
            Ok(answer) => redact_answer(answer, &key),
            Err(mut error) => {
                if let Some(message) = error.message_mut() {
                    *message = key.redact(message);
                }
                Err(error)
            }
        }
    }

    fn exchange(
        &mut self,
        request: EndpointRequest<'_>,
        assembly: &mut dyn AnswerAssembly,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        if self.endpoint.cancel.requested().is_some() {
            return Err(LlmError::Stopped {
                spent: Spent::Nothing,
            });
        }
        let bytes_sent = request.body.len();
        let post = self.http_request(&request, Some(request.body))?;
        let clock = AttemptClock::start(
            self.endpoint.idle_timeout,
            Some(TOTAL_TIMEOUT),
            self.deadline,
        );
        let started = self.transport.start(post, &self.endpoint.cancel);
        let exchange =
            started.map_err(|failure| error_of_failure(failure, &clock, Spent::Nothing))?;
        let outcome = AnswerReader::new(exchange, clock, assembly, watch, bytes_sent).read();
        outcome.map_err(|error| self.with_advice(error, &request))
    }

    fn with_advice(&mut self, error: LlmError, request: &EndpointRequest<'_>) -> LlmError {
        let LlmError::Permanent(mut error) = error else {
            return error;
        };
        match error.kind {
            PermanentErrorKind::UnknownPath => error.message += &advice_about_path(&request.url),
            PermanentErrorKind::UnknownModel => {
                let asked = model_of_body(request.body);
                error.message += &advice_about_model(&asked, self.models(request));
            }
            _ => {}
        }
        LlmError::Permanent(error)
    }

    /// Returns the models that the server lists, if it does so quickly.
    fn models(&mut self, request: &EndpointRequest<'_>) -> Option<Vec<String>> {
        let deadline = Instant::now() + LIST_TIMEOUT;
        let mut list = self.http_request(request, None).ok()?;
        list.url.clone_from(&request.models_url);
        let mut exchange = self.transport.start(list, &self.endpoint.cancel).ok()?;
        let mut body = Vec::new();
        loop {
            match exchange.next(deadline).ok()? {
                HttpPart::Head { status: 200, .. } => {}
                HttpPart::Chunk(bytes) if body.len() < MAX_LIST => body.extend(bytes),
                HttpPart::End => return listed_models(&body),
                HttpPart::Head { .. } | HttpPart::Chunk(_) => return None,
            }
        }
    }

    fn http_request(
        &self,
        request: &EndpointRequest<'_>,
        body: Option<&str>,
    ) -> Result<HttpRequest, LlmError> {
        let mut headers = request.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.endpoint.key {
            let (name, prefix) = request.key_header.clone();
            let invalid = || LlmError::Unauthorized {
                message: "the key holds characters that no key has".into(),
            };
            headers.insert(name, key.header(prefix).ok_or_else(invalid)?);
        }
        Ok(HttpRequest {
            url: request.url.clone(),
            headers,
            body: body.map(str::to_owned),
        })
    }
}

fn redact_answer(answer: Answer, key: &ApiKey) -> Result<Answer, LlmError> {
    // Pieces of a stream may have split the key, so the whole answer is searched.
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let Some(redacted) = key.redact_answer(&text) else {
        return Ok(answer);
    };
    serde_json::from_str(&redacted).map_err(|_| {
        let problem = "the answer contains the key, and redacting it makes the answer unreadable";
        LlmError::transient(problem, spent_so_far(answer.usage, 0, 0))
    })
}

#[cfg(test)]
mod tests;
