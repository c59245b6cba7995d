//! Names of files as git writes them with its default of `core.quotePath`.

/// The name; in double quotes, with C escapes, if a byte of it is a control character, a quote, a backslash, or not
/// ASCII.
pub(super) fn quoted(name: &[u8]) -> Vec<u8> {
    if !name.iter().any(|byte| must_escape(*byte)) {
        return name.to_owned();
    }
    let mut text = vec![b'"'];
    for byte in name {
        push_escaped(&mut text, *byte);
    }
    text.push(b'"');
    text
}

fn must_escape(byte: u8) -> bool {
    byte.is_ascii_control() || !byte.is_ascii() || matches!(byte, b'"' | b'\\')
}

fn push_escaped(text: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        _ if must_escape(byte) => {
            text.extend(format!("\\{byte:03o}").into_bytes());
            return;
        }
        _ => {
            text.push(byte);
            return;
        }
    };
    text.extend([b'\\', letter]);
}
