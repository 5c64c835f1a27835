//go:build linux

package hostile

import (
	"fmt"
	"strings"
)

// aNotification is to a host whose name cannot be one, so that nobody is asked where it is.
func aNotification(name string, more ...any) object {
	to := object{"webhook", object{"url", "https://example-.invalid/x", "secrets", list{"key"}}}
	return object{"id", newID(), "notification", with(object{"name", name, "on", list{"job.failed"}, "to", to}, more...)}
}

// tellReceivers names places that no message may go to, and files that are no secrets.
func tellReceivers(t *teller) error {
	p := &asker{t: t}
	for _, to := range []any{
		object{},
		nil,
		object{"webhook", object{}},
		object{"mail", object{"to", list{}}},
		webhook("file:///etc/passwd"), webhook("gopher://x.invalid/"), webhook("https://"), webhook("https://a:b@x.invalid/"), webhook("https://x.invalid/#f"),
		webhook("https://169.254.169.254/latest/meta-data"), webhook("https://[::1]/"),
		webhook("https://[::ffff:127.0.0.1]/"), webhook("https://10.0.0.1/"), webhook("https://x.invalid:0/"), webhook("https://x.invalid:99999/"), webhook("https://x.invalid/\r\nX: y"),
		webhook("https://x.invalid/" + strings.Repeat("x", 4000)), webhook("https://x\u202e.invalid/\x00"),
		webhook("https://x.invalid/", ""), webhook("https://x.invalid/", "../ca/ca.key"), webhook("https://x.invalid/", "/etc/passwd"), webhook("https://x.invalid/", "a\x00b"), webhook("https://x.invalid/", "."), webhook("https://x.invalid/", strings.Repeat("x", 300)),
		object{"webhook", object{"url", "https://x.invalid/", "secrets", manyOf("key", 1000)}},
		object{"mail", object{"to", list{"a@b\r\nBcc: c@d"}}},
		object{"mail", object{"to", manyOf("a@x.invalid", 1000)}},
		object{"mail", object{"to", list{strings.Repeat("a", 300) + "@x.invalid"}}},
		object{"webhook", object{"url", "https://x.invalid/", "secrets", list{"key"}}, "mail", object{"to", list{"a@x.invalid"}}},
	} {
		if err := p.refused(typePutNotification, aNotification(lieName(), "to", to)); err != nil {
			return fmt.Errorf("%.200v: %w", to, err)
		}
	}
	return nil
}

func webhook(url string, secret ...string) object {
	secrets := list{"key"}
	if len(secret) > 0 {
		secrets = list{secret[0]}
	}
	return object{"webhook", object{"url", url, "secrets", secrets}}
}
