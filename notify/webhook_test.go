package notify_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// newSecret writes a secret into a folder and returns it.
func newSecret(t testing.TB, folder, name string) string {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	if err := os.WriteFile(filepath.Join(folder, name), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return secret
}

// newWebhooks returns a sender with one secret, "main", in a folder.
func newWebhooks(t testing.TB, config notify.WebhookConfig) (w *notify.Webhooks, folder, secret string) {
	t.Helper()
	config.Secrets = t.TempDir()
	secret = newSecret(t, config.Secrets, "main")
	w, err := notify.NewWebhooks(config)
	if err != nil {
		t.Fatal(err)
	}
	return w, config.Secrets, secret
}

// newReceiver starts a server of TLS, and returns a configuration that may reach it.
func newReceiver(t testing.TB, handler http.HandlerFunc) (url string, config notify.WebhookConfig) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, notify.WebhookConfig{Networks: loopback, CAFiles: []string{ca}}
}

func receiver(url string, secrets ...string) harp.Receiver {
	if len(secrets) == 0 {
		secrets = []string{"main"}
	}
	return harp.Receiver{Webhook: &harp.Webhook{URL: url, Secrets: secrets}}
}

func message() notify.Message {
	return notify.Message{
		ID: "store.ops 1", Type: "job.failed", Time: time.Date(2027, 1, 2, 3, 4, 5, 6000000, time.UTC),
		Data: json.RawMessage(`{"host":"web1","text":"<&é>"}`),
	}
}

// failed returns the *notify.Error that err is.
func failed(t testing.TB, err error) *notify.Error {
	t.Helper()
	var said *notify.Error
	if !errors.As(err, &said) {
		t.Fatalf("%v is no *notify.Error", err)
	}
	return said
}

// TestWebhookSigned: a receiver verifies messages with the library of Standard Webhooks, with either secret while one is replaced.
func TestWebhookSigned(t *testing.T) {
	type post struct {
		header http.Header
		body   []byte
	}
	posts := make(chan post, 1)
	url, config := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/hook" || r.URL.RawQuery != "a=b" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		posts <- post{r.Header, body}
		w.WriteHeader(http.StatusAccepted)
	})
	w, folder, secret := newWebhooks(t, config)
	send := func(secrets ...string) post {
		t.Helper()
		if err := w.Check(receiver(url+"/hook?a=b", secrets...)); err != nil {
			t.Fatal(err)
		}
		if err := w.Send(t.Context(), receiver(url+"/hook?a=b", secrets...), message()); err != nil {
			t.Fatal(err)
		}
		return <-posts
	}
	verify := func(p post, secret string) error {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		return hook.Verify(p.body, p.header)
	}

	first := send("main")
	if err := verify(first, secret); err != nil {
		t.Error(err)
	}
	if got, want := string(first.body), `{"type":"job.failed","timestamp":"2027-01-02T03:04:05.006Z","data":{"host":"web1","text":"\u003c\u0026é\u003e"}}`; got != want {
		t.Errorf("the body is %s, want %s", got, want)
	}
	if id, kind := first.header.Get("webhook-id"), first.header.Get("content-type"); id != "store%2Eops%201" || kind != "application/json" {
		t.Errorf("id %q, type %q", id, kind)
	}

	next := newSecret(t, folder, "next")
	both := send("main", "next")
	if err := errors.Join(verify(both, secret), verify(both, next)); err != nil {
		t.Error("while a secret is replaced:", err)
	}

	replaced := newSecret(t, folder, "main")
	if after := send("main"); verify(after, replaced) != nil || verify(after, secret) == nil {
		t.Error("a replaced secret does not hold at once")
	}
}

// TestWebhookAnswers: what a receiver answers is told in one line, with how long it wants to be left alone.
func TestWebhookAnswers(t *testing.T) {
	var answer atomic.Pointer[func(http.ResponseWriter)]
	url, config := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { (*answer.Load())(w) })
	w, _, _ := newWebhooks(t, config)
	for _, c := range []struct {
		name   string
		code   int
		header []string // name, value
		body   string
		want   *notify.Error // After is compared to a second
	}{
		{"200", 200, nil, "thanks", nil},
		{"204", 204, nil, "", nil},
		{"299", 299, nil, "", nil},
		{"500", 500, nil, "no\x1b[31m\r\ndatabase\u2028here", &notify.Error{Answer: "500 Internal Server Error: no [31m database here"}},
		{"an unknown code", 599, nil, "", &notify.Error{Answer: "599"}},
		{"500 says nothing of when", 500, []string{"Retry-After", "60"}, "", &notify.Error{Answer: "500 Internal Server Error"}},
		{"410", 410, nil, "", &notify.Error{Answer: "410 Gone", Gone: true}},
		{"400", 400, nil, "who?", &notify.Error{Answer: "400 Bad Request: who?"}},
		{"429, seconds", 429, []string{"Retry-After", "120"}, "", &notify.Error{Answer: "429 Too Many Requests", After: 2 * time.Minute}},
		{"503, a date", 503, []string{"Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}, "", &notify.Error{Answer: "503 Service Unavailable", After: time.Hour}},
		{"503, a year", 503, []string{"Retry-After", "31536000"}, "", &notify.Error{Answer: "503 Service Unavailable", After: 24 * time.Hour}},
		{"503, nothing", 503, nil, "", &notify.Error{Answer: "503 Service Unavailable"}},
		{"no UTF-8", 500, nil, "a\xff", &notify.Error{Answer: "500 Internal Server Error: a\uFFFD"}},
		{"long", 500, nil, strings.Repeat("é", 1<<20), &notify.Error{Answer: "500 Internal Server Error: " + strings.Repeat("é", 135) + "…"}},
	} {
		respond := func(w http.ResponseWriter) {
			if c.header != nil {
				w.Header().Set(c.header[0], c.header[1])
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}
		answer.Store(&respond)
		err := w.Send(t.Context(), receiver(url), message())
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		got := failed(t, err)
		if off := c.want.After - got.After; off < -time.Second || off > 2*time.Minute || c.want.After < time.Hour && off != 0 {
			t.Errorf("%s: after %v, want %v", c.name, got.After, c.want.After)
		}
		if got.Answer != c.want.Answer || got.Gone != c.want.Gone || got.Final != c.want.Final {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestWebhookRedirect: no redirect is followed, and what it says of a path is told to nobody.
func TestWebhookRedirect(t *testing.T) {
	var asked atomic.Int32
	var to string
	url, config := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	w, _, _ := newWebhooks(t, config)
	for _, c := range []struct{ to, want string }{
		{url + "/secret", "307 Temporary Redirect to " + url + ": redirects are not followed"},
		{"/secret", "307 Temporary Redirect: redirects are not followed"},
		{"http://[", "307 Temporary Redirect: redirects are not followed"},
	} {
		to = c.to
		asked.Store(0)
		if got := failed(t, w.Send(t.Context(), receiver(url), message())); got.Answer != c.want || got.Final || got.Gone {
			t.Errorf("to %s: %+v", c.to, got)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("to %s: the receiver was asked %d times", c.to, n)
		}
	}
}

// TestWebhookCertificate: who cannot show a certificate for the host gets nothing.
func TestWebhookCertificate(t *testing.T) {
	url, config := newReceiver(t, func(http.ResponseWriter, *http.Request) { t.Error("a message was sent") })
	config.CAFiles = nil
	w, _, _ := newWebhooks(t, config)
	if got := failed(t, w.Send(t.Context(), receiver(url), message())); !strings.Contains(got.Answer, "certificate") || got.Final {
		t.Errorf("%+v", got)
	}
}

// pipes returns a sender whose connections are served by serve, one goroutine each, and what a URL of it is. For virtual time.
func pipes(t *testing.T, serve func(address string, conn net.Conn)) *notify.Webhooks {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	w, _, _ := newWebhooks(t, notify.WebhookConfig{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	w.SetDial(func(_ context.Context, _, address string) (net.Conn, error) {
		near, far := net.Pipe()
		serving.Go(func() {
			defer far.Close()
			serve(address, far)
		})
		return near, nil
	})
	return w
}

// TestWebhookNoAnswer: a receiver has ten seconds, and less if the caller has.
func TestWebhookNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipes(t, func(_ string, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		began := time.Now()
		if got := failed(t, w.Send(t.Context(), receiver("http://10.0.0.1/"), message())); got.Answer != "no answer within 10s" || got.Final {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Send(ctx, receiver("http://10.0.0.1/"), message()); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*notify.Error)) {
			t.Errorf("the caller's time is over: %v", err)
		}
	})
}

// TestWebhookDial: a connection that nobody waits for any more is not tried on.
func TestWebhookDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := newWebhooks(t, notify.WebhookConfig{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		began := time.Now()
		var ended atomic.Int64
		w.SetDial(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			ended.Store(int64(time.Since(began)))
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Send(ctx, receiver("http://10.0.0.1/"), message()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if after := time.Duration(ended.Load()); after != time.Second {
			t.Errorf("it was tried for %v", after)
		}
	})
}

// TestWebhookEndless: what a receiver answers costs a bounded number of bytes and a bounded time, whatever it is.
func TestWebhookEndless(t *testing.T) {
	for name, c := range map[string]struct{ head, again, want string }{
		"body of an error": {"HTTP/1.1 500 x\r\n\r\n", "abc\n", "500 Internal Server Error: abc abc"},
		"body":             {"HTTP/1.1 200 OK\r\n\r\n", "abc\n", ""},
		"headers":          {"HTTP/1.1 200 OK\r\n", "A: b\r\n", "net/http: "},
		"one header":       {"HTTP/1.1 200 OK\r\nA: ", "b", "net/http: "},
		"status":           {"", "HTTP", "net/http: "},
		"100 Continue":     {"", "HTTP/1.1 100 Continue\r\n\r\n", "net/http: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var written atomic.Int64
				w := pipes(t, func(_ string, conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
						t.Error(err)
					}
					_, _ = io.WriteString(conn, c.head)
					chunk := strings.Repeat(c.again, 200)
					for {
						n, err := io.WriteString(conn, chunk)
						written.Add(int64(n))
						if err != nil {
							return
						}
					}
				})
				began := time.Now()
				err := w.Send(t.Context(), receiver("http://10.0.0.1/"), message())
				if c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(failed(t, err).Answer, c.want) {
					t.Errorf("%v", err)
				}
				synctest.Wait()
				if n := written.Load(); n > 64<<10 || time.Since(began) != 0 {
					t.Errorf("%d bytes were read in %v", n, time.Since(began))
				}
			})
		})
	}
}

// TestWebhookSlowBody: who answers an error and then drips is told of as far as it came.
func TestWebhookSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipes(t, func(_ string, conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 500 x\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, "a"); err != nil {
					return
				}
				time.Sleep(1100 * time.Millisecond)
			}
		})
		began := time.Now()
		got := failed(t, w.Send(t.Context(), receiver("http://10.0.0.1/"), message()))
		if want := "500 Internal Server Error: " + strings.Repeat("a", 10); got.Answer != want || time.Since(began) != 10*time.Second {
			t.Errorf("%+v after %v", got, time.Since(began))
		}
	})
}

// TestWebhookMany: 1,000 messages to 50 receivers of whom 5 never answer: those who answer wait for nobody, and no receiver has
// is asked more than four times at once.
func TestWebhookMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asked [50]atomic.Int32 // and not answered
		w := pipes(t, func(address string, conn net.Conn) {
			n := netip.MustParseAddrPort(address).Addr().As4()[3]
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			if asked[n].Add(1) > 4 && time.Since(began) < 10*time.Second {
				t.Errorf("%s is asked more than 4 times at once", address)
			}
			if n >= 5 {
				time.Sleep(100 * time.Millisecond)
				asked[n].Add(-1)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			_, _ = io.Copy(io.Discard, conn)
		})
		type end struct {
			receiver int
			err      error
			took     time.Duration
		}
		ends := make(chan end)
		for i := range 1000 {
			go func() {
				err := w.Send(t.Context(), receiver("http://"+netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 50)}).String()), message())
				ends <- end{i % 50, err, time.Since(began)}
			}()
		}
		for range 1000 {
			switch e := <-ends; {
			case e.receiver >= 5 && (e.err != nil || e.took > 500*time.Millisecond): // 20 messages, 4 at a time
				t.Errorf("receiver %d: %v after %v", e.receiver, e.err, e.took)
			case e.receiver < 5 && (failed(t, e.err).Answer != "no answer within 10s" || e.took != 10*time.Second):
				t.Errorf("receiver %d, which never answers: %v after %v", e.receiver, e.err, e.took)
			}
		}
	})
}

// TestWebhookSwitches: a receiver that says it changes the protocol, and then nothing, has ten seconds as others: the connection
// is no longer the transport's, which does not end it.
func TestWebhookSwitches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipes(t, func(_ string, conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		})
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- w.Send(t.Context(), receiver("http://10.0.0.1/"), message()) }()
		select {
		case err := <-ended:
			if got := failed(t, err); got.Answer != "101 Switching Protocols" {
				t.Errorf("%+v", got)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		case <-time.After(time.Hour):
			t.Fatal("it is waited for after an hour")
		}
	})
}
