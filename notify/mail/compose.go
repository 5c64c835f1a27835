package mail

import (
	"bytes"
	netmail "net/mail"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/notify"
)

const (
	maxSubject = 200      // bytes
	maxText    = 64 << 10 // bytes, before they are encoded
	cut        = "\n[the rest is cut off: a mail has at most 64 KiB of text]\n"
)

// compose returns m as a mail. Its Message-ID is that of m, so that who gets it twice can tell. Errors: go-mail's.
func (s *Sender) compose(to []string, m notify.Message) ([]byte, error) {
	mail := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	mail.FromMailAddress(s.from)
	for _, address := range to {
		mail.AddToMailAddress(&netmail.Address{Address: address})
	}
	_, domain, _ := strings.Cut(s.from.Address, "@")
	mail.SetMessageIDWithValue(m.HeaderID() + "@" + domain)
	mail.SetDateWithValue(time.Now())
	mail.SetGenHeader("Auto-Submitted", "auto-generated") // so that nobody's holidays are answered
	mail.Subject(subject(m.Subject))
	mail.SetBodyString(gomail.TypeTextPlain, body(m.Text))
	var written bytes.Buffer
	if _, err := mail.WriteTo(&written); err != nil {
		return nil, err
	}
	return written.Bytes(), nil
}

// subject returns text as the line of a header. What looks like the encoding of a header is broken, or readers would decode it.
func subject(line string) string {
	return text.Shorten(strings.ReplaceAll(text.Line(line, maxSubject), "=?", "= ?"), maxSubject, "…")
}

// body returns text that is shown as it is: lines and tabs, and U+FFFD for what would do something else than be shown.
func body(printed string) string {
	if most := 4 * maxText; len(printed) > most { // U+FFFD takes three bytes
		printed = printed[:most]
	}
	printed = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(printed, "\uFFFD"))
	printed = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && text.Unprintable(r) {
			return '\uFFFD'
		}
		return r
	}, printed)
	return text.Shorten(printed, maxText, cut)
}
