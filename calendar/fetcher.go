package calendar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/outbound"
	"github.com/harpcaller/harp/internal/text"
)

const (
	fetchTime    = 10 * time.Second // with all that it takes
	maxRedirects = 5
	maxVersion   = 1 << 10 // bytes of an ETag or a Last-Modified that is kept
	maxToken     = 4 << 10 // bytes of a file with a token
	maxError     = 200     // bytes of what is told of an error
)

// Config says how calendars are fetched.
type Config struct {
	Networks []netip.Prefix // that may be reached beside the public Internet, and by http too: 10.1.0.0/16. None: no address of the dispatcher's own networks
	CAFiles  []string       // certificates of authorities as PEM, which are trusted beside the system's
	Tokens   string         // the folder of tokens; "": none is sent. A file cal.example.org, or cal.example.org:8443, holds the one that is sent to that host by https
}

// Fetcher is a [Source] that asks servers by https. It takes at most 10 seconds and harp.MaxCalendar bytes, follows redirects
// within the same host only, and uses no proxies.
type Fetcher struct {
	tokens    string
	within    time.Duration // a fetch
	transport *outbound.Transport
	client    http.Client
}

var _ Source = (*Fetcher)(nil)

// New returns a Fetcher. Errors: harp.ErrInvalid for a network that is none; those of reading CAFiles.
func New(config Config) (*Fetcher, error) {
	transport, err := outbound.New(outbound.Config{Networks: config.Networks, CAFiles: config.CAFiles, Within: fetchTime})
	if err != nil {
		return nil, err
	}
	return &Fetcher{
		tokens: config.Tokens, within: fetchTime, transport: transport,
		client: http.Client{Transport: transport, CheckRedirect: checkRedirect},
	}, nil
}

// redirectError says that a server sends elsewhere.
type redirectError struct{ message string }

func (e *redirectError) Error() string { return e.message }

// checkRedirect refuses to be sent to another host: that is one that nobody has named.
func checkRedirect(to *http.Request, before []*http.Request) error {
	switch {
	case origin(to.URL) != origin(before[0].URL):
		return &redirectError{"is redirected to " + to.URL.Scheme + "://" + to.URL.Host + ", which is another host"}
	case len(before) > maxRedirects:
		return &redirectError{fmt.Sprintf("is redirected more than %d times", maxRedirects)}
	}
	return nil
}

// origin is whom a URL is of: scheme, host and port.
func origin(u *url.URL) string { return u.Scheme + "://" + hostOf(u) }

// hostOf is the host of a URL, with a port that is not the scheme's own.
func hostOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return host + ":" + port
}

// Check implements Source: a URL must be https with a host, without a user or a fragment, and of no address that may not be reached. It may
// be http if networks are allowed; its host must be in one of them.
func (f *Fetcher) Check(address string) error {
	_, err := f.transport.ParseURL(address)
	return err
}

// Fetch implements Source.
func (f *Fetcher) Fetch(ctx context.Context, address string, have Version) (*Copy, error) {
	u, err := f.transport.ParseURL(address)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, f.within)
	defer cancel()
	request, err := f.request(within, u, have)
	if err != nil {
		return nil, err
	}
	response, err := f.client.Do(request)
	if err == nil {
		defer response.Body.Close()
		var c *Copy
		if c, err = read(response, have); err == nil {
			return c, nil
		}
	}
	return nil, f.explain(ctx, within, err)
}

// request asks for what is at a URL, if it is not what is there already.
func (f *Fetcher) request(ctx context.Context, u *url.URL, have Version) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("is no URL") // not err, which tells the URL
	}
	request.Header.Set("Accept", "text/calendar")
	request.Header.Set("User-Agent", "harp")
	if have.Tag != "" {
		request.Header.Set("If-None-Match", have.Tag)
	}
	if have.Modified != "" {
		request.Header.Set("If-Modified-Since", have.Modified)
	}
	token, err := f.token(u)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// token returns the one that is sent to the host of a URL; "": none.
func (f *Fetcher) token(u *url.URL) (string, error) {
	if f.tokens == "" || u.Scheme != "https" {
		return "", nil
	}
	folder, err := os.OpenRoot(f.tokens)
	if err != nil {
		return "", errors.New("the folder of tokens cannot be read")
	}
	defer folder.Close()
	host := hostOf(u)
	if strings.ContainsAny(host, `/\`) || host == "." {
		return "", nil
	}
	errUnread := errors.New("the token of its host cannot be read")
	switch info, err := folder.Stat(host); { // before it is opened: opening a pipe would wait for who writes it
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil || !info.Mode().IsRegular():
		return "", errUnread
	}
	file, err := folder.Open(host) // which does not leave the folder
	if err != nil {
		return "", errUnread
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	token := strings.TrimSpace(string(content))
	if err != nil || len(content) > maxToken || token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errUnread
	}
	return token, nil
}

// read reads the answer; nil if it says that nothing is new.
func read(response *http.Response, have Version) (*Copy, error) {
	switch {
	case response.StatusCode == http.StatusNotModified && have != Version{}:
		return nil, nil
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("its server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	case response.ContentLength > harp.MaxCalendar:
		return nil, errTooLong
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, harp.MaxCalendar+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer is cut off: %w", err)
	case len(content) > harp.MaxCalendar:
		return nil, errTooLong
	}
	return &Copy{Content: content, Version: Version{Tag: kept(response, "ETag"), Modified: kept(response, "Last-Modified")}}, nil
}

var errTooLong = fmt.Errorf("is longer than %d bytes", harp.MaxCalendar)

// kept is a header that is asked with the next time; what is too long is not.
func kept(response *http.Response, header string) string {
	value := response.Header.Get(header)
	if len(value) > maxVersion {
		return ""
	}
	return value
}

// explain is why a calendar cannot be fetched, in one line.
func (f *Fetcher) explain(ctx, within context.Context, err error) error {
	var inURL *url.Error // tells the URL
	for errors.As(err, &inURL) {
		err = inURL.Err
	}
	var redirected *redirectError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case within.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("there is no whole answer within %v", f.within)
	case errors.Is(err, outbound.ErrNetwork):
		return fmt.Errorf("its name stands for an address that %w", outbound.ErrNetwork) // which address is nobody's matter
	case errors.As(err, &redirected):
		err = redirected
	}
	return errors.New(text.Line(err.Error(), maxError))
}
