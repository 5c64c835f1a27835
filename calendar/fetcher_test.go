package calendar_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/internal/outbound/outboundtest"
)

const text = "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// serve serves h by https, and returns its URL and what trusts it.
func serve(t *testing.T, h http.HandlerFunc) (url string, config calendar.Config) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, calendar.Config{Networks: loopback, CAFiles: []string{ca}}
}

func newFetcher(t *testing.T, config calendar.Config) *calendar.Fetcher {
	t.Helper()
	f, err := calendar.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFetch: a calendar comes whole, and not again while its server says that it is the same.
func TestFetch(t *testing.T) {
	const modified = "Wed, 21 Oct 2026 07:28:00 GMT"
	url, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"1"` && r.Header.Get("If-Modified-Since") == modified {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("asked is %s with %v", r.Method, r.Header)
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", modified)
		_, _ = w.Write([]byte(text))
	})
	f := newFetcher(t, config)
	got, err := f.Fetch(t.Context(), url+"/a?b=c", calendar.Version{})
	if err != nil || string(got.Content) != text || got.Version != (calendar.Version{Tag: `"1"`, Modified: modified}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if again, err := f.Fetch(t.Context(), url+"/a?b=c", got.Version); again != nil || err != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
	if other, err := f.Fetch(t.Context(), url+"/a?b=c", calendar.Version{Tag: `"0"`}); err != nil || string(other.Content) != text {
		t.Errorf("of another version: %+v, %v", other, err)
	}
}

// TestBadAnswers: what is no whole calendar of the host that was named is an error in one line, which does not tell the URL.
func TestBadAnswers(t *testing.T) {
	var elsewhere string
	url, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch what := strings.TrimPrefix(r.URL.Path, "/secret/"); what {
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
		case "304":
			w.WriteHeader(http.StatusNotModified)
		case "204":
			w.WriteHeader(http.StatusNoContent)
		case "cut":
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(text))
		case "cut chunk":
			_, _ = w.Write([]byte(text))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "long":
			w.Header().Set("Content-Length", fmt.Sprint(100<<20))
			_, _ = w.Write(make([]byte, 1<<20))
		case "endless":
			for n := 0; ; n++ {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
				if n > 1000 {
					t.Error("more than 64 MiB were taken")
					return
				}
			}
		case "other":
			http.Redirect(w, r, elsewhere+"/secret/whole", http.StatusFound)
		case "plain":
			http.Redirect(w, r, strings.Replace(ownURL(r), "https", "http", 1)+"/secret/whole", http.StatusFound)
		case "round":
			http.Redirect(w, r, "/secret/round", http.StatusFound)
		case "here":
			http.Redirect(w, r, "/secret/whole", http.StatusMovedPermanently)
		case "whole":
			_, _ = w.Write([]byte(text))
		case "headers":
			for n := range 100 {
				w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("x", 1<<10))
			}
		}
	})
	elsewhere, _ = serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") })
	f := newFetcher(t, config)
	for path, want := range map[string]string{
		"500": "its server answers 500 Internal Server Error", "304": "its server answers 304 Not Modified", "204": "its server answers 204 No Content",
		"cut": "the answer is cut off: unexpected EOF", "cut chunk": "the answer is cut off: unexpected EOF",
		"long": "is longer than 786432 bytes", "endless": "is longer than 786432 bytes",
		"other": "is redirected to " + elsewhere + ", which is another host", "plain": "which is another host", "round": "is redirected more than 5 times", "headers": "",
	} {
		got, err := f.Fetch(t.Context(), url+"/secret/"+path, calendar.Version{})
		if got != nil || err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	if got, err := f.Fetch(t.Context(), url+"/secret/here", calendar.Version{}); err != nil || string(got.Content) != text {
		t.Errorf("redirected on the same host: %v", err)
	}
}

// ownURL is that of the server.
func ownURL(r *http.Request) string { return "https://" + r.Host }

// TestTime: a server that does not answer is given up after ten seconds, and when nobody waits any more.
func TestTime(t *testing.T) {
	hang, asked := make(chan struct{}), make(chan struct{}, 2)
	url, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("BEGIN"))
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-hang
	})
	defer close(hang)
	f := newFetcher(t, config)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	go func() {
		<-asked
		cancel(over)
	}()
	if _, err := f.Fetch(ctx, url, calendar.Version{}); !errors.Is(err, over) {
		t.Errorf("nobody waits: %v", err)
	}
	calendar.SetTime(f, 50*time.Millisecond)
	if _, err := f.Fetch(t.Context(), url, calendar.Version{}); err == nil || err.Error() != "there is no whole answer within 50ms" {
		t.Errorf("in time: %v", err)
	}
}

// TestNetworks: what may not be reached is not, as a literal address or as a name that stands for it.
func TestNetworks(t *testing.T) {
	url, config := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	config.Networks = nil
	f := newFetcher(t, config)
	for _, bad := range []string{url, "https://localhost/", "https://[::1]/", "http://example.com/", "https://ana:x@example.com/", "https://example.com/#a", "file:///etc/passwd", ""} {
		if err := f.Check(bad); err == nil {
			t.Errorf("%s may be fetched", bad)
		}
		if _, err := f.Fetch(t.Context(), bad, calendar.Version{}); err == nil {
			t.Errorf("%s was fetched", bad)
		}
	}
	calendar.SetResolver(f, outboundtest.Resolver(t, [4]byte{127, 0, 0, 1}))
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	if err := f.Check("https://cal.example.org:" + port); err != nil {
		t.Error(err)
	}
	_, err := f.Fetch(t.Context(), "https://cal.example.org:"+port, calendar.Version{})
	if err == nil || !strings.Contains(err.Error(), "its name stands for an address that is in no network that the dispatcher's configuration allows") {
		t.Errorf("a name that stands for 127.0.0.1: %v", err)
	}
	if _, err := calendar.New(calendar.Config{Networks: make([]netip.Prefix, 1)}); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("a network that is none: %v", err)
	}
}

// TestCertificate: a server whose certificate nobody trusts is not asked.
func TestCertificate(t *testing.T) {
	url, config := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	config.CAFiles = nil
	if _, err := newFetcher(t, config).Fetch(t.Context(), url, calendar.Version{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}

// TestTokens: a host gets the token of the file that has its name, and no other.
func TestTokens(t *testing.T) {
	got := ""
	url, config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(text))
	})
	config.Tokens = t.TempDir()
	host := strings.TrimPrefix(url, "https://")
	f := newFetcher(t, config)
	for name, content := range map[string]string{"cal.example.org": "other", "127.0.0.1": "another port"} {
		if err := os.WriteFile(filepath.Join(config.Tokens, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ content, want, err string }{
		{"", "", "the token of its host cannot be read"},
		{"s3cret\n", "Bearer s3cret", ""},
		{"a\nb", "", "the token of its host cannot be read"},
		{strings.Repeat("x", 5<<10), "", "the token of its host cannot be read"},
	} {
		got = ""
		if err := os.WriteFile(filepath.Join(config.Tokens, host), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.Fetch(t.Context(), url, calendar.Version{})
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%.10q: sent is %q, %v", c.content, got, err)
		}
	}
	if err := os.Remove(filepath.Join(config.Tokens, host)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fetch(t.Context(), url, calendar.Version{}); got != "" || err != nil {
		t.Errorf("without a file: sent is %q, %v", got, err)
	}
}
