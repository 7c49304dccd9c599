//! Hand-made TLS client hellos, with options that libraries do not offer.

/// A client hello for `name`, with further extensions that hold a few bytes each.
pub fn client_hello(name: &str, further: &[u16]) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, data: &[u8]| [&kind.to_be_bytes()[..], &with_length(data)].concat();
    let entry = [&[0][..], &with_length(name.as_bytes())].concat();
    let mut extensions = extension(0, &with_length(&entry));
    for kind in further {
        extensions.extend(extension(*kind, &[0; 6]));
    }
    let body = [&[3, 3][..], &[9; 32], &[0], &[0, 2, 0x13, 0x01], &[1, 0], &with_length(&extensions)].concat();
    let message = [&[1, 0][..], &with_length(&body)].concat();
    [&[0x16, 3, 1][..], &with_length(&message)].concat()
}
