// Package outboundtest has what tests of requests to servers of others need.
package outboundtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// Resolver answers that any name stands for an address.
func Resolver(t testing.TB, address [4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for {
				var size uint16
				if binary.Read(far, binary.BigEndian, &size) != nil {
					return
				}
				question := make([]byte, size)
				if _, err := io.ReadFull(far, question); err != nil {
					t.Error(err)
					return
				}
				end := 12 // of the header
				for question[end] != 0 {
					end += int(question[end]) + 1
				}
				end += 5 // the end of the name, type, class
				answer := append([]byte(nil), question[:end]...)
				copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}) // recursion, no error, one question
				if question[end-3] == 1 {                                    // A, and not AAAA
					answer[7] = 1
					answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
					answer = append(answer, address[:]...)
				}
				if _, err := far.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}
}
