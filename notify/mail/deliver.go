package mail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/harpcaller/harp/internal/outbound/certs"
	"github.com/harpcaller/harp/notify"
)

// maxRead is how many bytes a server may say to one message.
const maxRead = 256 << 10

// deliver gives m to the server for those who wait, and returns whom of them it refused. Errors: *notify.Error where the
// server refuses m itself; what kept it from being sent.
func (s *Sender) deliver(ctx context.Context, to, waiting []string, m notify.Message) (refused []refusal, err error) {
	written, err := s.compose(to, m)
	if err != nil {
		return nil, &notify.Error{Answer: oneLine(err.Error()), Final: true}
	}
	conn, err := s.dial(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // what waits for conn ends
	defer stop()

	server, err := s.connect(ctx, &boundedConn{Conn: conn, left: maxRead})
	if err != nil {
		return nil, err
	}
	if err := server.Mail("<" + s.from.Address + ">"); err != nil {
		return nil, said("sender", err) // which is not about m: of one server all messages have the same
	}
	for _, address := range waiting {
		if err := server.Rcpt("<" + address + ">"); err != nil {
			answer, ok := refusalOf(err)
			if !ok {
				return nil, said("receiver", err)
			}
			answer.to = address
			refused = append(refused, answer)
		}
	}
	if len(refused) == len(waiting) {
		leave(server)
		return refused, nil
	}
	data, err := server.Data()
	if err == nil {
		_, err = data.Write(written)
		err = errors.Join(err, data.Close())
	}
	if answer, ok := refusalOf(err); ok && answer.final {
		return nil, &notify.Error{Answer: oneLine("message: " + answer.answer), Final: true}
	}
	if err != nil {
		return nil, said("message", err)
	}
	leave(server)
	return refused, nil
}

// connect says hello to the server, over TLS, and logs in.
func (s *Sender) connect(ctx context.Context, conn net.Conn) (*smtp.Client, error) {
	if s.config.Security == Implicit {
		secured, err := certs.Client(ctx, conn, s.security, s.address)
		if err != nil {
			return nil, said("TLS", err)
		}
		conn = secured
	}
	server, err := smtp.NewClient(conn, s.host)
	if err != nil {
		return nil, said("greeting", err)
	}
	if err := server.Hello(s.config.Hello); err != nil {
		return nil, said("hello", err)
	}
	if s.config.Security == StartTLS {
		if offered, _ := server.Extension("STARTTLS"); !offered {
			return nil, errors.New("the server offers no STARTTLS, so that nothing was sent")
		}
		security := s.security.Clone()
		security.ServerName = s.host
		if err := server.StartTLS(security); err != nil {
			return nil, said("STARTTLS", err)
		}
	}
	if s.config.User == "" {
		return server, nil
	}
	return server, s.logIn(server)
}

// logIn authenticates the user, over TLS only. What a server answers to a password is not told but for its code.
func (s *Sender) logIn(server *smtp.Client) error {
	if _, ok := server.TLSConnectionState(); !ok {
		return errors.New("the password is sent over TLS only")
	}
	password, err := s.password()
	if err != nil {
		return err
	}
	_, offered := server.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", s.config.User, password, s.host, false)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = smtp.LoginAuth(s.config.User, password, s.host, false)
	default:
		return errors.New("the server offers neither AUTH PLAIN nor LOGIN")
	}
	if err := server.Auth(auth); err != nil {
		var answer *textproto.Error
		if errors.As(err, &answer) {
			return fmt.Errorf("the server does not let the user in: %d", answer.Code)
		}
		return errors.New("the server did not answer to the password")
	}
	return nil
}

// refusalOf returns what a server answered; ok is false if it said nothing, or (421) that it ends.
func refusalOf(err error) (_ refusal, ok bool) {
	var answer *textproto.Error
	if !errors.As(err, &answer) || answer.Code == 421 {
		return refusal{}, false
	}
	return refusal{answer: answerLine(answer), final: answer.Code/100 == 5}, true
}

func answerLine(answer *textproto.Error) string {
	return oneLine(fmt.Sprintf("%d %s", answer.Code, answer.Msg))
}

// said says to what the server gave an answer, or none.
func said(of string, err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("%s: %s", of, answerLine(answer))
	}
	return fmt.Errorf("%s: %w", of, err)
}

// leave ends a session without waiting for what the server says to that: a message that was taken stays so.
func leave(server *smtp.Client) { _, _ = server.Text.Cmd("QUIT") }

// errTooMuch is of a server that says more than any answer is long.
var errTooMuch = errors.New("the server says too much")

// boundedConn reads a bounded number of bytes, as answers of SMTP have no limit of their own.
type boundedConn struct {
	net.Conn
	left int
}

// Read reads what came. Errors: errTooMuch; those of the connection.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
