//! The served description is true: whatever an operation answers, it lists, with the type that it is sent in.

use serde_json::Value;

use crate::kit::{Agent, Answer, Store, eventually, raw};
use crate::registry::{ASKED, concrete};

/// Fails unless this answer of this operation is described, with its type.
pub(crate) fn assert_described(api: &Value, method: &str, path: &str, answer: &Answer) {
    let known = &api["paths"][path][method]["responses"][answer.status.to_string()];
    let known = match known["$ref"].as_str() {
        Some(place) => api.pointer(place.trim_start_matches('#')).unwrap(),
        None => known,
    };
    let kind = answer.head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    assert!(known["content"][kind].is_object(), "{method} {path} answers {} {kind}: {known}", answer.status);
    if answer.status >= 400 && kind == "application/problem+json" {
        let problem = answer.json();
        assert_eq!(problem["status"], answer.status, "{problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    }
}

/// A request of an operation, with something wrong about it.
struct Wrong<'a> {
    path: &'a str,
    headers: &'a str,
    body: &'a str,
    status: u16,
}

fn ask(agent: &Agent, method: &str, wrong: &Wrong) -> Answer {
    let (path, headers, body) = (wrong.path, wrong.headers, wrong.body);
    let head = format!("{} {path} HTTP/1.0\r\n{headers}", method.to_uppercase());
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let stream = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
    raw(stream, request.as_bytes()).unwrap()
}

#[test]
fn every_operation_describes_what_is_wrong_with_a_request() {
    const JSON: &str = "Content-Type: application/json\r\n";
    let store = Store::file();
    let agent = Agent::start(&store, "a", "[[role]]\nname = \"job\"\n[http]\nmax-body = 1000");
    eventually("it leads", || agent.leads("job"));
    let api = agent.get("/openapi.json").json();
    let long = format!("{{\"why\": \"{}\"}}", "x".repeat(2000));
    for (method, path, body, _) in ASKED {
        let operation = &api["paths"][path][method];
        let (fine, odd) = (concrete(path), path.replace('{', "").replace('}', "%20"));
        let strange = format!("{fine}?strange=1");
        let foreign = format!("{JSON}Host: localhost\r\nOrigin: http://evil.test\r\n");
        let named = |place: &str| {
            operation["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["in"] == place))
        };
        let mut all = vec![Wrong { path: &fine, headers: &foreign, body: body.unwrap_or(""), status: 403 }];
        if path.contains('{') {
            all.push(Wrong { path: &odd, headers: JSON, body: body.unwrap_or(""), status: 400 });
        }
        if named("query") {
            all.push(Wrong { path: &strange, headers: JSON, body: "", status: 400 });
        }
        if !operation["requestBody"].is_null() {
            all.push(Wrong { path: &fine, headers: JSON, body: "not json", status: 400 });
            all.push(Wrong { path: &fine, headers: JSON, body: "{\"strange\": 1}", status: 400 });
            all.push(Wrong { path: &fine, headers: "Content-Type: text/plain\r\n", body: "{}", status: 415 });
            all.push(Wrong { path: &fine, headers: JSON, body: &long, status: 413 });
        }
        // A HEAD has no body that could be looked at.
        for wrong in all.iter().filter(|_| *method != "head") {
            let answer = ask(&agent, method, wrong);
            assert_eq!(answer.status, wrong.status, "{method} {}: {answer:?}", wrong.path);
            assert_described(&api, method, path, &answer);
        }
    }
}

#[test]
fn the_description_hangs_together() {
    let store = Store::file();
    let agent = Agent::start(&store, "a", "");
    let api = agent.get("/openapi.json").json();
    let mut ids: Vec<&str> = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            ids.push(operation["operationId"].as_str().unwrap());
            let responses = operation["responses"].as_object().unwrap();
            for (status, response) in responses {
                let said = response["description"].as_str().or(response["$ref"].as_str());
                assert!(said.is_some_and(|text| !text.is_empty()), "{method} {path}: {status} says nothing");
            }
            for always in ["401", "403", "421", "429"] {
                assert!(responses.contains_key(always), "{method} {path}: {always}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let text = parameter["schema"].to_string();
                assert!(
                    !text.contains("null"),
                    "{method} {path}: what is in a URL or a header is not null: {parameter}"
                );
            }
        }
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each operation has an id of its own");
    let mut places = Vec::new();
    references(&api, &mut places);
    for place in places {
        assert!(api.pointer(place.trim_start_matches('#')).is_some(), "{place} leads nowhere");
    }
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}
