package transport_test

import (
	"bytes"

	"github.com/harpcaller/harp/internal/msgpack"
)

// bin returns a msgpack value of n bytes and its header.
func bin(n int) []byte { return msgpack.AppendBytes(nil, bytes.Repeat([]byte{'x'}, n)) }
