package mail_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/harpcaller/harp/notify/mail"
)

// server is a mail server of go-smtp. What a receiver's name begins with is how it is answered: 450, 550.
type server struct {
	address string
	ca      string

	mu       sync.Mutex
	mails    []taken
	password string // that is accepted
	auths    int
	answer   func(stage, what string) error // nil: all are taken
}

// taken is a mail that the server took.
type taken struct {
	from, auth string
	to         []string
	data       string
}

// serve starts a server. Its configuration may be changed before.
func serve(t testing.TB, change func(s *smtp.Server)) *server {
	t.Helper()
	return serveOn(t, func(inner net.Listener, _ *tls.Config) net.Listener { return inner }, change)
}

func serveOn(t testing.TB, listen func(inner net.Listener, config *tls.Config) net.Listener, change func(s *smtp.Server)) *server {
	t.Helper()
	web := httptest.NewTLSServer(nil) // whose certificate is good for 127.0.0.1
	web.Close()
	s := &server{ca: filepath.Join(t.TempDir(), "ca.pem"), password: "sekrit"}
	if err := os.WriteFile(s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{server: s}, nil }))
	server.TLSConfig = &tls.Config{Certificates: web.TLS.Certificates}
	server.ErrorLog = discard{}
	if change != nil {
		change(server)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listen(listener, web.TLS)) })
	t.Cleanup(func() {
		_ = server.Close()
		done.Wait()
	})
	return s
}

type discard struct{}

func (discard) Printf(string, ...any) {}

func (discard) Println(...any) {}

type session struct {
	server *server
	mail   taken
}

func (s *session) Reset() { s.mail = taken{auth: s.mail.auth} }

func (s *session) Logout() error { return nil }

func (s *session) AuthMechanisms() []string { return []string{"PLAIN"} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.server.auths++
		if password != s.server.password {
			return &smtp.SMTPError{Code: 535, Message: "no: " + password} // as no server should say
		}
		s.mail.auth = user
		return nil
	}), nil
}

func (s *session) ask(stage, what string) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.answer == nil {
		return nil
	}
	return s.server.answer(stage, what)
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.mail.from = from
	return s.ask("mail", from)
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.ask("rcpt", to); err != nil {
		return err
	}
	s.mail.to = append(s.mail.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.ask("data", string(data)); err != nil {
		return err
	}
	s.mail.data = string(data)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, s.mail)
	return nil
}

// respond makes the server answer so from now on.
func (s *server) respond(answer func(stage, what string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// mail returns the mails that came since it was called the last time.
func (s *server) taken() []taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	mails := s.mails
	s.mails = nil
	return mails
}

// sender returns a Sender to the server, which logs in as ops.
func (s *server) sender(t testing.TB, change func(c *mail.Config)) *mail.Sender {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("sekrit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := mail.Config{Server: s.address, From: "harp <harp@example.org>", User: "ops", PasswordFile: file, CAFiles: []string{s.ca}, Hello: "dispatcher.example.org"}
	if change != nil {
		change(&config)
	}
	sender, err := mail.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}
