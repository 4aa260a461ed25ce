//! Scanner of anchors, aliases, tags and directives.

use crate::{
    Error,
    scan::{Placed, Scanner, Token, problem},
};

impl<'a> Scanner<'a> {
    pub(super) fn anchor(&mut self, alias: bool) -> Result<Placed<'a>, Error> {
        let mark = self.cursor.mark;
        self.cursor.skip();
        let name = self.cursor.skip_while(is_word);
        let next = self.cursor.peek(0);
        if name.is_empty()
            || !(self.cursor.is_space(0)
                || matches!(next, b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'))
        {
            return self.fail("did not find expected alphabetic or numeric character");
        }
        Ok((if alias { Token::Alias(name) } else { Token::Anchor(name) }, mark))
    }

    pub(super) fn tag(&mut self) -> Result<Placed<'a>, Error> {
        let (mark, from) = (self.cursor.mark, self.cursor.at);
        self.cursor.skip();
        let (mut handle, mut suffix) = ("", String::new());
        if self.cursor.peek(0) == b'<' {
            self.cursor.skip();
            self.tag_text(&mut suffix)?;
            if suffix.is_empty() {
                return self.fail("did not find expected tag URI");
            }
            if self.cursor.peek(0) != b'>' {
                return self.fail("did not find the expected '>'");
            }
            self.cursor.skip();
        } else {
            let word = self.cursor.skip_while(is_word);
            if self.cursor.peek(0) == b'!' {
                self.cursor.skip();
                handle = self.cursor.between(from, self.cursor.at);
                self.tag_text(&mut suffix)?;
                if suffix.is_empty() {
                    return self.fail("did not find expected tag URI");
                }
            } else {
                suffix.push_str(word);
                self.tag_text(&mut suffix)?;
                if suffix.is_empty() {
                    suffix.push('!');
                } else {
                    handle = "!";
                }
            }
        }
        if !self.cursor.is_space(0) {
            return self.fail("did not find expected whitespace or line break");
        }
        Ok((Token::Tag(handle, suffix), mark))
    }

    /// Scans the characters of a tag, with `%xx` decoded.
    fn tag_text(&mut self, out: &mut String) -> Result<(), Error> {
        loop {
            out.push_str(self.cursor.skip_while(|b| is_word(b) || b";/?:@&=+$,.!~*'()[]".contains(&b)));
            let mut bytes = Vec::new();
            while self.cursor.peek(0) == b'%' {
                let digits = [self.cursor.peek(1), self.cursor.peek(2)].map(|b| char::from(b).to_digit(16));
                let [Some(high), Some(low)] = digits else {
                    return self.fail("did not find URI escaped octet");
                };
                bytes.push((high << 4 | low) as u8);
                (0..3).for_each(|_| self.cursor.skip());
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let text = String::from_utf8(bytes)
                .map_err(|_| problem(self.cursor.mark, "found an incorrect leading UTF-8 octet"))?;
            out.push_str(&text);
        }
    }

    /// Scans a line that begins with `%`.
    pub(super) fn directive(&mut self) -> Result<Placed<'a>, Error> {
        let mark = self.cursor.mark;
        self.cursor.skip();
        let line = self.cursor.skip_line().split(" #").next().unwrap_or_default();
        let words: Vec<&str> = line.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        let token = match words.as_slice() {
            ["YAML", version] if version.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
                Token::Version(version)
            }
            ["TAG", handle, prefix] => Token::TagPrefix(handle, prefix),
            ["YAML" | "TAG", ..] => {
                return self.fail("did not find expected comment or line break");
            }
            _ => return self.fail("found unknown directive name"),
        };
        Ok((token, mark))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
