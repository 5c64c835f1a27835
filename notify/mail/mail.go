// Package mail delivers messages of a dispatcher by mail, through one server. It is apart from package notify so that who
// needs no mail compiles none.
package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/outbound/certs"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/notify"
)

const (
	maxTime     = time.Minute // for one try, with all that it takes
	maxConns    = 4           // to the server at a time
	maxAddress  = 254         // bytes, as RFC 5321 has it
	maxPassword = 1 << 10     // bytes of a file with a password
	maxLine     = 300         // bytes of an answer that are told
)

// Security says how a connection to the server is made secret.
type Security string

// The kinds of Security.
const (
	StartTLS Security = "starttls" // by STARTTLS, without which nothing is sent. This is meant by ""
	Implicit Security = "implicit" // from the first byte on
	Plain    Security = "none"     // not at all: for a server on the same machine. A password is never sent so
)

// ports are those that a server without one gets.
var ports = map[Security]string{StartTLS: "587", Implicit: "465", Plain: "25"}

// Config says how mail is sent.
type Config struct {
	Server       string   // a name or address, or one with a port: mail.example.org:587. Without a port it is 587; 465 where Security is Implicit, 25 where it is Plain
	From         string   // an address, or one with a name: harp <harp@example.org>
	User         string   // whom the dispatcher logs in as; "": it does not
	PasswordFile string   // the password of User, read at each try
	Security     Security // "": StartTLS
	CAFiles      []string // certificates of authorities as PEM, which are trusted beside the system's
	Hello        string   // the name that the dispatcher tells of itself; "": that of its host
}

// Sender is a [notify.Sender] that sends messages by mail: one for all receivers of a message, as text. What a host
// printed stays text, and cannot become a header.
//
// A receiver that is refused keeps the message from nobody else. One that is refused for good (5xx) is told as an error that is
// final, when the others have been served. One that is refused for now (4xx) is tried again, alone; only if the dispatcher is
// restarted in between, or more than 1,000 messages are in that state, the others get the message twice, with the same Message-ID.
type Sender struct {
	config   Config
	from     *netmail.Address
	host     string // of the server
	address  string // of the server, with the port
	security *tls.Config
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	slots    chan struct{} // a token for each connection
	served   served
}

var _ notify.Sender = (*Sender)(nil)

// New returns a Sender. Errors: harp.ErrInvalid, naming the field; those of reading CAFiles.
func New(config Config) (*Sender, error) {
	if config.Security == "" {
		config.Security = StartTLS
	}
	wrong := func(field, what string) error { return &harp.FieldError{Field: field, Message: what} }
	port, known := ports[config.Security]
	if !known {
		return nil, wrong("security", fmt.Sprintf("must be %s, %s or %s", StartTLS, Implicit, Plain))
	}
	host, given, err := net.SplitHostPort(config.Server)
	if err == nil {
		port = given
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(config.Server, "["), "]")
	}
	from, err := netmail.ParseAddress(config.From)
	switch {
	case host == "" || port == "" || strings.ContainsAny(config.Server, " \t\r\n/@"):
		return nil, wrong("server", "must be a host, or host:port")
	case err != nil || checkAddress(from.Address) != nil || strings.ContainsFunc(from.Name, text.Unprintable):
		return nil, wrong("from", "must be an address as harp@example.org or harp <harp@example.org>")
	case (config.User == "") != (config.PasswordFile == ""):
		return nil, wrong("password_file", "is needed with a user, and only then")
	case config.User != "" && config.Security == Plain:
		return nil, wrong("security", "must not be none where there is a user: the password could be read by others")
	case strings.ContainsFunc(config.Hello, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, wrong("hello", "must be the name of a host")
	}
	if config.Hello == "" {
		config.Hello = hostName()
	}
	security, err := certs.Config(config.CAFiles)
	if err != nil {
		return nil, err
	}
	return &Sender{
		config: config, from: from, host: host, address: net.JoinHostPort(host, port), security: security,
		dial: new(net.Dialer).DialContext, slots: make(chan struct{}, maxConns),
	}, nil
}

// hostName returns what a server is told that expects a name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "localhost"
	}
	return name
}

// Accepts reports whether r gets mail.
func (s *Sender) Accepts(r harp.Receiver) bool { return r.Mail != nil }

// Check returns harp.ErrInvalid (to.mail.to) if there are no addresses, more than harp.MaxMailTo, one of them twice, or one
// that is no plain address of ASCII as ana@example.org: without a name, comments, quotes or ends of lines.
func (s *Sender) Check(r harp.Receiver) error {
	if r.Mail == nil {
		return &harp.FieldError{Field: "to.mail", Message: "is needed"}
	}
	wrong := func(format string, args ...any) error {
		return &harp.FieldError{Field: "to.mail.to", Message: fmt.Sprintf(format, args...)}
	}
	if n := len(r.Mail.To); n < 1 || n > harp.MaxMailTo {
		return wrong("has %d addresses, must have 1 to %d", n, harp.MaxMailTo)
	}
	for i, address := range r.Mail.To {
		if err := checkAddress(address); err != nil {
			return wrong("%.64q %v", address, err)
		}
		if slices.Contains(r.Mail.To[:i], address) {
			return wrong("%q is there twice", address)
		}
	}
	return nil
}

// checkAddress tells what is wrong with a plain address.
func checkAddress(address string) error {
	parsed, err := netmail.ParseAddress(address)
	if err != nil || parsed.Address != address || len(address) > maxAddress || strings.ContainsAny(address, "[]<>\"\\ ") ||
		strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must be an address as ana@example.org, at most 254 bytes of ASCII")
	}
	return nil
}

// Send sends m once to those of r who have not got it yet; it takes at most a minute. Errors: *notify.Error, which is final
// where the server refuses m, or everybody who has not got it, for good; ctx's. What a server says of the sender or of the
// user (a wrong password) is not final, as it is not about m.
func (s *Sender) Send(ctx context.Context, r harp.Receiver, m notify.Message) error {
	if err := s.Check(r); err != nil {
		return &notify.Error{Answer: oneLine(err.Error()), Final: true}
	}
	within, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-within.Done():
		return s.failure(ctx, within, errors.New("others were being sent"))
	}
	waiting := s.served.without(m.ID, r.Mail.To)
	refused, err := s.deliver(within, r.Mail.To, waiting, m)
	if err != nil {
		return s.failure(ctx, within, err)
	}
	return s.served.settle(m.ID, waiting, refused)
}

// failure returns what Send returns for an error that kept the message from everybody.
func (s *Sender) failure(ctx, within context.Context, err error) error {
	var said *notify.Error
	switch {
	case errors.As(err, &said):
		return said
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return &notify.Error{Answer: fmt.Sprintf("not sent within %v", maxTime)}
	}
	return &notify.Error{Answer: oneLine(err.Error())}
}

// password returns what is in the file now. Its errors tell nothing of that.
func (s *Sender) password() (string, error) {
	file, err := os.Open(s.config.PasswordFile)
	if err != nil {
		return "", errors.New("the file with the password cannot be read")
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxPassword+1))
	password := strings.TrimRight(string(content), "\r\n")
	if err != nil || password == "" || len(content) > maxPassword {
		return "", fmt.Errorf("the file with the password does not hold one, of at most %d bytes", maxPassword)
	}
	return password, nil
}

func oneLine(s string) string { return text.Line(s, maxLine) }
