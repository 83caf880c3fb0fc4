//! An HTTP call as a scheduled run. The token is in a header, so that the called server can refuse a former leader's.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use tenure::schedule::{RunContext, RunFailure, RunSuccess, TaskRunner};

use crate::outbound::{self, Outbound, Plain, REFUSED};
use crate::time::Stamp;

/// A call without a timeout of its own has this long.
const LONGEST: Duration = Duration::from_secs(300);

/// An HTTP call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where.
    pub url: String,
    /// How.
    pub method: String,
    /// Headers beside those that carry the token.
    pub headers: BTreeMap<String, String>,
    /// What is sent.
    pub body: String,
}

/// Calls a URL for each tick, with `tenure-task`, `tenure-run`, `tenure-tick`, `tenure-attempt`, `tenure-token`, `tenure-node` and
/// `tenure-role` in its headers. Any 2xx is a success; 4xx other than 408 and 429 is not tried again.
#[derive(Debug, Clone)]
pub struct HttpRunner {
    settings: HttpSettings,
    outbound: Outbound,
}

impl HttpRunner {
    /// A call.
    #[must_use]
    pub fn new(settings: HttpSettings, outbound: Outbound) -> Self {
        Self { settings, outbound }
    }

    fn headers(&self, run: &RunContext) -> Result<HeaderMap, RunFailure> {
        let role = run.lead().map(|lead| lead.role().to_string());
        let ours = [
            ("tenure-task", Some(run.task().to_string())),
            ("tenure-run", Some(run.id())),
            ("tenure-tick", Some(Stamp(run.tick()).to_string())),
            ("tenure-attempt", Some(run.attempt().to_string())),
            ("tenure-token", Some(run.token().to_string())),
            ("tenure-node", Some(run.node().name().to_string())),
            ("tenure-role", role),
        ];
        let theirs = self.settings.headers.iter().map(|(name, value)| (name.as_str(), Some(value.clone())));
        let mut headers = HeaderMap::new();
        for (name, value) in theirs.chain(ours) {
            let Some(value) = value else { continue };
            let (name, value) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(RunFailure::permanent("a header is invalid"));
            };
            headers.insert(name, value);
        }
        Ok(headers)
    }

    async fn call(&self, run: &RunContext) -> Result<RunSuccess, RunFailure> {
        let method: Method = self.settings.method.parse().map_err(|_| RunFailure::permanent(NO_METHOD))?;
        let (headers, body) = (self.headers(run)?, self.settings.body.clone());
        let request = |client: Client, url: Url| client.request(method, url).headers(headers).body(body);
        // The last question before anything leaves this process.
        if !run.check() {
            return Err(RunFailure::permanent("leadership was lost before the call"));
        }
        let status = call(&self.outbound, &self.settings.url, request).await?;
        let exit = i32::from(status.as_u16());
        if status.is_success() {
            return Ok(RunSuccess::with_exit(exit));
        }
        let again = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        let failed = RunFailure::from(refusal(status)).with_exit(exit);
        Err(failed.permanent_if(status.is_client_error() && !again))
    }
}

impl TaskRunner for HttpRunner {
    fn run(&self, run: RunContext) -> BoxFuture<'static, Result<RunSuccess, RunFailure>> {
        let this = self.clone();
        async move { this.call(&run).await }.boxed()
    }
}

const NO_METHOD: &str = "unknown HTTP method";

/// Calls that URL; the status of the answer. An error does not tell the URL, which may hold a secret.
pub(crate) async fn call(
    outbound: &Outbound,
    url: &str,
    request: impl FnOnce(Client, Url) -> RequestBuilder,
) -> Result<StatusCode, RunFailure> {
    let url = outbound::parse(url).map_err(RunFailure::permanent)?;
    let client = outbound.client(&url, Plain::Anywhere, LONGEST).map_err(RunFailure::permanent)?;
    let answer = request(client, url).send().await.map_err(|error| {
        let why = outbound::why(error);
        RunFailure::from(&why).permanent_if(why.contains(REFUSED))
    })?;
    Ok(answer.status())
}

/// Whether the rest of a call can be sent; if not, which key is to blame, and why.
pub(crate) fn check_call(settings: &HttpSettings) -> Result<(), (&'static str, String)> {
    settings.method.parse::<Method>().map_err(|_| ("method", NO_METHOD.to_owned()))?;
    for (name, value) in &settings.headers {
        if name.parse::<HeaderName>().is_err() || value.parse::<HeaderValue>().is_err() {
            return Err(("headers", format!("the header {name:?} is invalid")));
        }
    }
    Ok(())
}

/// Why an answer with this status is no success.
pub(crate) fn refusal(status: StatusCode) -> String {
    let more = if status.is_redirection() { ", and redirects are not followed" } else { "" };
    format!("the answer was {status}{more}")
}
