//! The protocol of NATS: lines, some of which announce so many bytes.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Longer lines, and longer messages, are of no server that keeps registers.
const LONGEST_LINE: usize = 1 << 20;
const LONGEST_MESSAGE: usize = 64 << 20;

/// What a server says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) version: String,
    pub(super) headers: bool,
    pub(super) jetstream: bool,
    pub(super) max_payload: usize,
    pub(super) tls_required: bool,
    pub(super) tls_available: bool,
    pub(super) auth_required: bool,
    pub(super) nonce: String,
    /// The name of the group of servers, if it is one of several.
    pub(super) cluster: Option<String>,
}

/// What a client says of itself first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Connect<'a> {
    pub(super) verbose: bool,
    pub(super) pedantic: bool,
    pub(super) tls_required: bool,
    pub(super) name: &'a str,
    pub(super) lang: &'a str,
    pub(super) version: &'a str,
    pub(super) protocol: u8,
    pub(super) headers: bool,
    pub(super) no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sig: Option<String>,
}

/// What a server sends.
#[derive(Debug)]
pub(super) enum Frame {
    Info(Box<Info>),
    Message(u64, Message),
    Ping,
    Pong,
    Okay,
    Complaint(String),
}

/// A message that was sent to a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) subject: String,
    /// 503 and so on, if the server itself answers.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: Bytes,
}

impl Message {
    /// The last of that name: those of the server come after those of the publisher.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .rev()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }
}

/// Takes the next frame, if it has come whole; why not, if it never will.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, &'static str> {
    let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") else {
        return if buffer.len() > LONGEST_LINE { Err("a line without end") } else { Ok(None) };
    };
    let line = std::str::from_utf8(&buffer[..end]).map_err(|_| "a line that is no text")?;
    let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let frame = match word.to_ascii_uppercase().as_str() {
        "MSG" | "HMSG" => return message(buffer, end),
        "INFO" => Frame::Info(serde_json::from_str(rest).map_err(|_| "an INFO that cannot be read")?),
        "PING" => Frame::Ping,
        "PONG" => Frame::Pong,
        "+OK" => Frame::Okay,
        "-ERR" => Frame::Complaint(rest.trim().trim_matches('\'').to_owned()),
        _ => return Err("a word that NATS does not have"),
    };
    buffer.advance(end + 2);
    Ok(Some(frame))
}

/// `MSG subject sid [reply] length`, or `HMSG subject sid [reply] header-length length`, then the bytes.
fn message(buffer: &mut BytesMut, end: usize) -> Result<Option<Frame>, &'static str> {
    const BAD: &str = "a message that cannot be read";
    let line = std::str::from_utf8(&buffer[..end]).map_err(|_| BAD)?;
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let has_headers = words[0].len() == 4;
    let number = |nth: usize| words.get(nth).and_then(|word| word.parse::<usize>().ok()).ok_or(BAD);
    if words.len() < 4 + usize::from(has_headers) {
        return Err(BAD);
    }
    let length = number(words.len() - 1)?;
    let head = if has_headers { number(words.len() - 2)? } else { 0 };
    let (subject, sid) = (words[1].to_owned(), number(2)? as u64);
    if length > LONGEST_MESSAGE || head > length {
        return Err(BAD);
    }
    if buffer.len() < end + 2 + length + 2 {
        return Ok(None);
    }
    buffer.advance(end + 2);
    let mut body = buffer.split_to(length).freeze();
    buffer.advance(2);
    let (status, headers) = headers(&body.split_to(head));
    Ok(Some(Frame::Message(sid, Message { subject, status, headers, payload: body })))
}

fn headers(block: &[u8]) -> (Option<u16>, Vec<(String, String)>) {
    let text = String::from_utf8_lossy(block);
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("NATS/1.0")?.split_ascii_whitespace().next()?.parse().ok());
    let pairs = lines.filter_map(|line| line.split_once(':'));
    (status, pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

/// A message to be sent, with where the answer goes.
pub(super) fn publish(subject: &str, reply: &str, headers: &[(&str, String)], payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 256);
    if headers.is_empty() {
        out.extend_from_slice(format!("PUB {subject} {reply} {}\r\n", payload.len()).as_bytes());
    } else {
        let mut block = String::from("NATS/1.0\r\n");
        headers.iter().for_each(|(name, value)| block += &format!("{name}: {value}\r\n"));
        block += "\r\n";
        let (head, length) = (block.len(), block.len() + payload.len());
        out.extend_from_slice(format!("HPUB {subject} {reply} {head} {length}\r\n{block}").as_bytes());
    }
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let sent = b"INFO {\"version\":\"2.15.0\",\"headers\":true}\r\nPING\r\nMSG a.b 7 3\r\nx\r\n\r\n\
            HMSG a 1 r 18 20\r\nNATS/1.0 503\r\n\r\n\r\nok\r\n-ERR 'Authorization Violation'\r\n";
        for step in 1..sent.len() {
            let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
            for part in sent.chunks(step) {
                buffer.extend_from_slice(part);
                while let Some(frame) = take(&mut buffer).unwrap() {
                    found.push(frame);
                }
            }
            let [
                Frame::Info(info),
                Frame::Ping,
                Frame::Message(7, first),
                Frame::Message(1, second),
                Frame::Complaint(why),
            ] = &found[..]
            else {
                panic!("{found:?}")
            };
            assert_eq!((info.version.as_str(), info.headers), ("2.15.0", true));
            assert_eq!((first.subject.as_str(), &first.payload[..]), ("a.b", &b"x\r\n"[..]));
            assert_eq!((second.status, &second.payload[..]), (Some(503), &b"ok"[..]));
            assert_eq!(why, "Authorization Violation");
        }
    }

    #[test]
    fn headers_are_written_and_read() {
        let sent = publish("s", "r", &[("Nats-TTL", "24h".to_owned())], b"{}");
        let mut buffer = BytesMut::from(&sent[..]);
        let head = buffer.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        let line = String::from_utf8(buffer.split_to(head).to_vec()).unwrap();
        assert_eq!(line, "HPUB s r 27 29\r\n");
        let (status, found) = headers(&buffer[..27]);
        assert_eq!((status, found), (None, vec![("Nats-TTL".to_owned(), "24h".to_owned())]));
        assert_eq!(&publish("s", "r", &[], b"{}")[..], b"PUB s r 2\r\n{}\r\n");
    }

    #[test]
    fn what_is_no_nats_is_told() {
        for strange in
            ["HTTP/1.1 400 Bad Request\r\n", "MSG a\r\n", "HMSG a 1 9 2\r\n", "MSG a 1 99999999999\r\n"]
        {
            assert!(take(&mut BytesMut::from(strange)).is_err(), "{strange}");
        }
        assert!(take(&mut BytesMut::from(&vec![b'x'; LONGEST_LINE + 1][..])).is_err());
    }
}
