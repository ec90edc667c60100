//! The values of XDR, as methods of everything that is written from its front.

/// Methods that write values, for a type with `put_fixed`.
macro_rules! put_values {
    () => {
        /// Writes an unsigned integer.
        #[inline]
        pub fn put_u32(&mut self, value: u32) {
            self.put_fixed(&value.to_be_bytes());
        }

        /// Writes an integer.
        #[inline]
        pub fn put_i32(&mut self, value: i32) {
            self.put_fixed(&value.to_be_bytes());
        }

        /// Writes an unsigned hyper integer.
        #[inline]
        pub fn put_u64(&mut self, value: u64) {
            self.put_fixed(&value.to_be_bytes());
        }

        /// Writes a hyper integer.
        #[inline]
        pub fn put_i64(&mut self, value: i64) {
            self.put_fixed(&value.to_be_bytes());
        }

        /// Writes a boolean.
        #[inline]
        pub fn put_bool(&mut self, value: bool) {
            self.put_u32(value.into());
        }

        /// Writes variable-length opaque data: count, bytes, padding.
        pub fn put_opaque(&mut self, bytes: &[u8]) {
            self.put_u32(bytes.len() as u32);
            self.put_fixed(bytes);
        }

        /// Writes a string: count, bytes, padding.
        pub fn put_string(&mut self, text: &str) {
            self.put_opaque(text.as_bytes());
        }

        /// Writes optional data: whether there is a value, and the value by `write`.
        pub fn put_optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
            self.put_bool(value.is_some());
            if let Some(value) = value {
                write(self, value);
            }
        }
    };
}

pub(crate) use put_values;
