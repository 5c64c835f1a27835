package notify_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestWebhooksOfOneHost: a receiver that does not answer keeps those waiting for nothing that have another URL of the same host.
func TestWebhooksOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipes(t, func(_ string, conn net.Conn) {
			request, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil && request.URL.Path == "/good" {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			_, _ = io.Copy(io.Discard, conn)
		})
		const host = "http://10.0.0.1"
		ends := make(chan error)
		for range 20 {
			go func() { ends <- w.Send(t.Context(), receiver(host+"/bad"), message()) }()
		}
		synctest.Wait()
		began := time.Now()
		if err := w.Send(t.Context(), receiver(host+"/good"), message()); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for range 20 {
			if err := <-ends; err == nil {
				t.Error("it was taken")
			}
		}
	})
}
