package mail_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/notify/mail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func receiver(to ...string) harp.Receiver { return harp.Receiver{Mail: &harp.Mail{To: to}} }

func message() notify.Message {
	return notify.Message{ID: "store.ops 1", Type: "job.failed", Subject: "backup failed on web1", Text: "exit 1\n.\nBcc: a@example.org\n..\n\x1b[2Jgrüße\r\nno line end"}
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

// parse returns the headers and the text of a mail.
func parse(t testing.TB, data string) (netmail.Header, string) {
	t.Helper()
	m, err := netmail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if kind, encoding := m.Header.Get("Content-Type"), m.Header.Get("Content-Transfer-Encoding"); kind != "text/plain; charset=UTF-8" || encoding != "quoted-printable" {
		t.Errorf("a mail of %s, %s", kind, encoding)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	return m.Header, strings.ReplaceAll(string(text), "\r\n", "\n")
}

// TestMail: a message is one mail for all receivers, over STARTTLS, and each try has its Message-ID.
func TestMail(t *testing.T) {
	s := serve(t, nil)
	sender := s.sender(t, nil)
	to := receiver("ana@example.org", "ben@example.org")
	if err := sender.Check(to); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sender.Send(t.Context(), to, message()); err != nil {
			t.Fatal(err)
		}
	}
	mails := s.taken()
	if len(mails) != 2 {
		t.Fatalf("%d mails", len(mails))
	}
	for _, m := range mails {
		header, text := parse(t, m.data)
		if m.from != "harp@example.org" || m.auth != "ops" || !slices.Equal(m.to, to.Mail.To) {
			t.Errorf("%s sends as %s to %v", m.auth, m.from, m.to)
		}
		for name, want := range map[string]string{
			"From": `"harp" <harp@example.org>`, "To": "<ana@example.org>, <ben@example.org>", "Subject": "backup failed on web1",
			"Message-Id": "<store%2Eops%201@example.org>", "Auto-Submitted": "auto-generated", "Mime-Version": "1.0",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if date, err := header.Date(); err != nil || time.Since(date) > time.Minute {
			t.Errorf("Date: %v, %v", date, err)
		}
		if want := "exit 1\n.\nBcc: a@example.org\n..\n\uFFFD[2Jgrüße\nno line end"; strings.TrimSuffix(text, "\n") != want {
			t.Errorf("the text is %q, want %q", text, want)
		}
	}
}

// TestSubject: whatever a subject holds, it is one header and no other.
func TestSubject(t *testing.T) {
	s := serve(t, nil)
	sender := s.sender(t, nil)
	for _, c := range []struct{ subject, want string }{
		{"", ""},
		{"a\r\nBcc: eve@example.org\r\n\r\nbody", "a Bcc: eve@example.org body"},
		{"a\nb\rc\x00d\x85e\u0085f\u2028g", "a b c d\uFFFDe f g"},
		{"Größe: 漢字", "Größe: 漢字"},
		{"\u202egnp.exe", "gnp.exe"},
		{"=?utf-8?q?a=0D=0ABcc:_b?=", "= ?utf-8?q?a=0D=0ABcc:_b?="},
		{"é =?utf-8?q?a?=", "é = ?utf-8?q?a?="},
		{strings.Repeat("é", 1<<20), strings.Repeat("é", 98) + "…"},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 197) + "…"},
	} {
		m := message()
		m.Subject = c.subject
		if err := sender.Send(t.Context(), receiver("ana@example.org"), m); err != nil {
			t.Fatal(err)
		}
		header, _ := parse(t, s.taken()[0].data)
		got, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
		if err != nil || got != c.want || len(header["Subject"]) != 1 || header.Get("Bcc") != "" {
			t.Errorf("%.40q: %q, %v, want %q", c.subject, got, err, c.want)
		}
	}
}

// TestLongText: 64 KiB of a text are sent, whole characters, and it says that it is cut.
func TestLongText(t *testing.T) {
	s := serve(t, nil)
	sender := s.sender(t, nil)
	m := message()
	m.Text = strings.Repeat("é", 10<<20)
	if err := sender.Send(t.Context(), receiver("ana@example.org"), m); err != nil {
		t.Fatal(err)
	}
	_, text := parse(t, s.taken()[0].data)
	start, end, _ := strings.Cut(text, "\n")
	if strings.Trim(start, "é") != "" || len(start) < 65000 || len(text) > 64<<10 || end != "[the rest is cut off: a mail has at most 64 KiB of text]\n" {
		t.Errorf("%d bytes, %q", len(text), end)
	}
	exact := strings.Repeat("x", 64<<10)
	if mail.Body(exact) != exact {
		t.Error("what fits is cut")
	}
}

func FuzzBody(f *testing.F) {
	f.Add("a\r\n.\r\n\x1b[2J\xff\u202e")
	f.Fuzz(func(t *testing.T, printed string) {
		got := mail.Body(printed)
		if len(got) > 64<<10 || strings.ContainsAny(got, "\r\x00\x1b\u202e") {
			t.Errorf("%q", got)
		}
		if line := mail.Subject(printed); len(line) > 200 || strings.ContainsAny(line, "\r\n\x00\x1b\u202e\u2028") || strings.Contains(line, "=?") {
			t.Errorf("%q", line)
		}
	})
}

// TestCheck: what is wrong with a receiver is told before anything is stored.
func TestCheck(t *testing.T) {
	sender, err := mail.New(mail.Config{Server: "mail.example.org", From: "harp@example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"ana@example.org", "a.b+c_d-e%f@sub.example.org", "ana@localhost", strings.Repeat("a", 64) + "@example.org"} {
		if err := sender.Check(receiver(address)); err != nil {
			t.Error(err)
		}
	}
	for _, address := range []string{
		"", "ana", "@example.org", "ana@", "Ana <ana@example.org>", "<ana@example.org>", "ana@example.org (Ana)", "ana@example.org, ben@example.org", " ana@example.org",
		"ana@example.org\r\nRCPT TO:<eve@example.org>", "ana@example.org\n", "\"a b\"@example.org", "ana@[127.0.0.1]", "añá@example.org", "ana@exämple.org", "a\x00@example.org",
		"ana@example.org>", "ana\u2028@example.org", strings.Repeat("a", 250) + "@example.org", "ana@example.org ORCPT=a",
	} {
		var field *harp.FieldError
		if err := sender.Check(receiver("ben@example.org", address)); !errors.As(err, &field) || field.Field != "to.mail.to" {
			t.Errorf("%q: %v", address, err)
		}
		if got := failed(t, sender.Send(t.Context(), receiver(address), message())); !got.Final {
			t.Errorf("%q: sending: %+v", address, got)
		}
	}
	many := make([]string, harp.MaxMailTo+1)
	for i := range many {
		many[i] = fmt.Sprintf("a%d@example.org", i)
	}
	if sender.Check(receiver(many...)) == nil || sender.Check(receiver(many[1:]...)) != nil || sender.Check(receiver()) == nil ||
		sender.Check(receiver("a@example.org", "a@example.org")) == nil || sender.Check(harp.Receiver{}) == nil {
		t.Error("addresses are not counted")
	}
	if sender.Accepts(harp.Receiver{Webhook: &harp.Webhook{}}) || !sender.Accepts(receiver()) {
		t.Error("what is no mail is accepted")
	}
}

func TestConfig(t *testing.T) {
	for field, config := range map[string]mail.Config{
		"server":        {From: "harp@example.org"},
		"from":          {Server: "mail", From: "harp"},
		"security":      {Server: "mail", From: "harp@example.org", Security: "opportunistic"},
		"password_file": {Server: "mail", From: "harp@example.org", User: "ops"},
		"hello":         {Server: "mail", From: "harp@example.org", Hello: "a\r\nb"},
	} {
		var wrong *harp.FieldError
		if _, err := mail.New(config); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var wrong *harp.FieldError
	if _, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", User: "ops", PasswordFile: "a", Security: mail.Plain}); !errors.As(err, &wrong) || wrong.Field != "security" {
		t.Error(err)
	}
	if _, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", CAFiles: []string{"mail_test.go"}}); err == nil {
		t.Error("a file without a certificate is taken")
	}
}

// TestPassword: it is read at each try, so that another holds at once; and no error tells of it.
func TestPassword(t *testing.T) {
	s := serve(t, nil)
	file := filepath.Join(t.TempDir(), "password")
	sender := s.sender(t, func(c *mail.Config) { c.PasswordFile = file })
	for _, c := range []struct{ content, want string }{
		{"-", "the file with the password cannot be read"},
		{"", "the file with the password does not hold one, of at most 1024 bytes"},
		{strings.Repeat("a", 1025), "the file with the password does not hold one, of at most 1024 bytes"},
		{"wr0ng", "the server does not let the user in: 535"},
		{"sekrit\r\n", ""},
	} {
		if c.content != "-" {
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := sender.Send(t.Context(), receiver("ana@example.org"), message())
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if got := failed(t, err); got.Answer != c.want || got.Final { // who gets the message has nothing to do with it
			t.Errorf("%q: %+v", c.content, got)
		}
	}
}

// TestSecurity: without TLS nothing is sent, least of all a password, unless the configuration says so.
func TestSecurity(t *testing.T) {
	t.Run("no STARTTLS", func(t *testing.T) {
		s := serve(t, func(s *smtp.Server) { s.TLSConfig, s.AllowInsecureAuth = nil, true })
		got := failed(t, s.sender(t, nil).Send(t.Context(), receiver("ana@example.org"), message()))
		if got.Answer != "the server offers no STARTTLS, so that nothing was sent" || got.Final || s.auths != 0 {
			t.Errorf("%+v, %d passwords were sent", got, s.auths)
		}
	})
	t.Run("unknown certificate", func(t *testing.T) {
		s := serve(t, nil)
		got := failed(t, s.sender(t, func(c *mail.Config) { c.CAFiles = nil }).Send(t.Context(), receiver("ana@example.org"), message()))
		if !strings.HasPrefix(got.Answer, "STARTTLS: tls: failed to verify certificate") || got.Final || s.auths != 0 {
			t.Errorf("%+v, %d passwords were sent", got, s.auths)
		}
	})
	t.Run("none", func(t *testing.T) {
		s := serve(t, func(s *smtp.Server) { s.TLSConfig = nil })
		sender := s.sender(t, func(c *mail.Config) { c.User, c.PasswordFile, c.Security = "", "", mail.Plain })
		if err := sender.Send(t.Context(), receiver("ana@example.org"), message()); err != nil || len(s.taken()) != 1 {
			t.Error(err)
		}
	})
	t.Run("implicit", func(t *testing.T) {
		s := serveOn(t, tls.NewListener, nil)
		sender := s.sender(t, func(c *mail.Config) { c.Security = mail.Implicit })
		if err := sender.Send(t.Context(), receiver("ana@example.org"), message()); err != nil {
			t.Fatal(err)
		}
		if mails := s.taken(); len(mails) != 1 || mails[0].auth != "ops" {
			t.Errorf("%+v", mails)
		}
	})
}

// TestAnswers: what a server says of a message is final if it says so; what it says of the sender is not.
func TestAnswers(t *testing.T) {
	s := serve(t, nil)
	sender := s.sender(t, nil)
	for _, c := range []struct {
		stage string
		code  int
		want  notify.Error
	}{
		{"mail", 550, notify.Error{Answer: "sender: 550 no 5.0.0 it is not"}},
		{"mail", 451, notify.Error{Answer: "sender: 451 no 4.0.0 it is not"}},
		{"rcpt", 550, notify.Error{Answer: "sent to 0 of 1; ana@example.org: 550 no 5.0.0 it is not", Final: true}},
		{"rcpt", 450, notify.Error{Answer: "sent to 0 of 1; ana@example.org: 450 no 4.0.0 it is not"}},
		{"rcpt", 421, notify.Error{Answer: "receiver: 421 no 4.0.0 it is not"}},
		{"data", 554, notify.Error{Answer: "message: 554 no 5.0.0 it is not", Final: true}},
		{"data", 451, notify.Error{Answer: "message: 451 no 4.0.0 it is not"}},
	} {
		s.respond(func(stage, _ string) error {
			if stage != c.stage {
				return nil
			}
			return &smtp.SMTPError{Code: c.code, EnhancedCode: smtp.EnhancedCode{c.code / 100, 0, 0}, Message: "no\n\x1bit is not"}
		})
		if got := failed(t, sender.Send(t.Context(), receiver("ana@example.org"), message())); *got != c.want {
			t.Errorf("%d to %s: %+v, want %+v", c.code, c.stage, *got, c.want)
		}
	}
	if n := len(s.taken()); n != 0 || sender.Remembered() != 0 {
		t.Errorf("%d mails, %d remembered", n, sender.Remembered())
	}
}

// TestSomeRefused: who is refused keeps the message from nobody else, and nobody gets it twice.
func TestSomeRefused(t *testing.T) {
	s := serve(t, nil)
	sender := s.sender(t, nil)
	codes := map[string]int{"gone@example.org": 550, "full@example.org": 452}
	s.respond(func(stage, what string) error {
		if code := codes[what]; stage == "rcpt" && code != 0 {
			return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: "no"}
		}
		return nil
	})
	try := func(want *notify.Error, got ...string) {
		t.Helper()
		err := sender.Send(t.Context(), receiver("gone@example.org", "ana@example.org", "full@example.org", "ben@example.org"), message())
		if want == nil != (err == nil) || want != nil && *failed(t, err) != *want {
			t.Errorf("%+v, want %+v", err, want)
		}
		mails := s.taken()
		if len(got) == 0 && len(mails) > 0 || len(got) > 0 && (len(mails) != 1 || !slices.Equal(mails[0].to, got)) {
			t.Errorf("%v got it, want %v", mails, got)
		}
	}
	const gone, full = "gone@example.org: 550 5.0.0 no", "full@example.org: 452 4.0.0 no"
	try(&notify.Error{Answer: "sent to 2 of 4; " + full + "; " + gone}, "ana@example.org", "ben@example.org")
	try(&notify.Error{Answer: "sent to 2 of 4; " + full + "; " + gone})
	delete(codes, "full@example.org")
	try(&notify.Error{Answer: "sent to 3 of 4; " + gone, Final: true}, "full@example.org")
	if n := sender.Remembered(); n != 0 {
		t.Errorf("%d messages are remembered", n)
	}

	codes["full@example.org"] = 452
	for i := range 1100 {
		m := message()
		m.ID = fmt.Sprint(i)
		if i > 5 && i < 1090 { // without asking a server so often
			sender.Settle(m.ID, "ana@example.org", "full@example.org")
			continue
		}
		_ = failed(t, sender.Send(t.Context(), receiver("ana@example.org", "full@example.org"), m))
	}
	if n := sender.Remembered(); n != 1000 {
		t.Errorf("%d messages are remembered", n)
	}
}

// TestNoAnswer: a server that stops to answer, wherever that is, keeps a message for a minute, and for less if the caller has.
func TestNoAnswer(t *testing.T) {
	lines := []string{"220 hello", "250 hello", "250 sender", "250 receiver", "354 go on", "250 taken"}
	for stop := range lines {
		synctest.Test(t, func(t *testing.T) {
			sender, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", Security: mail.Plain})
			if err != nil {
				t.Fatal(err)
			}
			var open atomic.Int32
			sender.SetDial(func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				open.Add(1)
				go func() {
					defer open.Add(-1)
					talk(far, lines[:stop])
				}()
				return near, nil
			})
			began := time.Now()
			got := failed(t, sender.Send(t.Context(), receiver("ana@example.org"), message()))
			if got.Answer != "not sent within 1m0s" || got.Final || time.Since(began) != time.Minute {
				t.Errorf("%d answers: %+v after %v", stop, got, time.Since(began))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := sender.Send(ctx, receiver("ana@example.org"), message()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller's time is over: %v", err)
			}
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

// talk gives these answers, one to each line, and then none.
func talk(conn net.Conn, answers []string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i, answer := range answers {
		if i > 0 {
			line, err := in.ReadString('\n')
			for i == 5 && err == nil && line != ".\r\n" {
				line, err = in.ReadString('\n')
			}
			if err != nil {
				return
			}
		}
		if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, in)
}

// TestTakenThenGone: a message that the server took is sent, whatever becomes of the connection then.
func TestTakenThenGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sender, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", Security: mail.Plain})
		if err != nil {
			t.Fatal(err)
		}
		sender.SetDial(func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go talk(far, []string{"220 hello", "250 hello", "250 sender", "250 receiver", "354 go on", "250 taken"})
			return near, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := sender.Send(ctx, receiver("ana@example.org"), message()); err != nil || time.Since(began) != 0 { // QUIT is never answered
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestEndlessAnswer: a server that never ends an answer costs a bounded number of bytes.
func TestEndlessAnswer(t *testing.T) {
	for name, again := range map[string]string{"line": "220 a", "lines": "220-a\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			sender, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", Security: mail.Plain})
			if err != nil {
				t.Fatal(err)
			}
			var written atomic.Int64
			sender.SetDial(func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					for {
						n, err := io.WriteString(far, strings.Repeat(again, 100))
						written.Add(int64(n))
						if err != nil {
							return
						}
					}
				}()
				return near, nil
			})
			got := failed(t, sender.Send(t.Context(), receiver("ana@example.org"), message()))
			synctest.Wait()
			if n := written.Load(); got.Answer != "greeting: the server says too much" || n > 300<<10 {
				t.Errorf("%s: %+v, %d bytes", name, got, n)
			}
		})
	}
}

// TestMany: 100 messages at once, by four connections at a time.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sender, err := mail.New(mail.Config{Server: "mail", From: "harp@example.org", Security: mail.Plain})
		if err != nil {
			t.Fatal(err)
		}
		var open, most atomic.Int32
		sender.SetDial(func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			most.Store(max(most.Load(), open.Add(1)))
			go func() {
				defer far.Close()
				time.Sleep(time.Second)
				open.Add(-1)
				talk(far, []string{"220 hello", "250 hello", "250 sender", "250 receiver", "354 go on", "250 taken", "221 bye"})
			}()
			return near, nil
		})
		ends := make(chan error)
		for range 100 {
			go func() { ends <- sender.Send(t.Context(), receiver("ana@example.org"), message()) }()
		}
		for range 100 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if n := most.Load(); n > 4 {
			t.Errorf("%d connections at a time", n)
		}
	})
}
