package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
)

const (
	// expiresSoon is how long before the end of its certificate the agent says so, at most a third of
	// the time for which that is good, and certificateEvery how often it looks.
	expiresSoon      = 14 * 24 * time.Hour
	certificateEvery = time.Hour
)

// problemSource is what found problems: the code that they have, and of several of that code which.
type problemSource struct{ code, of string }

// problems are what the agent knows to be wrong with itself. Its dispatcher is told when they
// come, change and go.
type problems struct {
	mu      sync.Mutex // guards what follows
	version int        // raised with each change
	texts   map[problemSource][]string
}

// set replaces the problems of a source, none: all is well with it. It reports whether that is news.
func (p *problems) set(from problemSource, texts ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.texts[from], texts) {
		return false
	}
	if p.texts == nil {
		p.texts = map[problemSource][]string{}
	}
	if p.texts[from] = texts; len(texts) == 0 {
		delete(p.texts, from)
	}
	p.version++
	return true
}

// current is the version of the problems.
func (p *problems) current() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// list returns as many problems as a dispatcher takes, by code.
func (p *problems) list() []harp.HostProblem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []harp.HostProblem
	for _, from := range slices.SortedFunc(maps.Keys(p.texts), func(a, b problemSource) int {
		return strings.Compare(a.code+"\x00"+a.of, b.code+"\x00"+b.of)
	}) {
		for _, t := range p.texts[from] {
			list = append(list, harp.HostProblem{Code: from.code, Text: text.Shorten(t, wire.MaxProblemText, cutMark)})
		}
	}
	return list[:min(len(list), wire.MaxProblems)]
}

// report replaces the problems of a source, and lets the dispatcher hear of it.
func (a *Agent) report(from problemSource, texts ...string) {
	if a.problems.set(from, texts...) {
		a.sendProblems()
	}
}

// sendProblems lets the session with the dispatcher look for what is to be told anew.
func (a *Agent) sendProblems() {
	a.mu.Lock()
	s := a.current
	a.mu.Unlock()
	if s != nil {
		wake.Signal(s.news)
	}
}

// lookAtCertificate notes whether the agent's certificate ends soon, or has ended.
func (a *Agent) lookAtCertificate() {
	var found []string
	if leaf := leafOf(a.cfg.TLS); leaf != nil && time.Until(leaf.NotAfter) < min(expiresSoon, leaf.NotAfter.Sub(leaf.NotBefore)/3) {
		word := "expires"
		if time.Now().After(leaf.NotAfter) {
			word = "expired"
		}
		found = []string{fmt.Sprintf("the agent's certificate %s on %s", word, leaf.NotAfter.UTC().Format("2006-01-02 15:04 UTC"))}
	}
	if a.problems.set(problemSource{code: harp.ProblemCertificate}, found...) && len(found) > 0 {
		a.log.Warn(found[0])
	}
}

// leafOf returns the certificate that connections with a configuration show now; nil: none is known.
func leafOf(tc *tls.Config) *x509.Certificate {
	if tc == nil {
		return nil
	}
	var shown *tls.Certificate
	switch {
	case tc.GetClientCertificate != nil:
		shown, _ = tc.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
	case len(tc.Certificates) > 0:
		shown = &tc.Certificates[0]
	}
	switch {
	case shown == nil || len(shown.Certificate) == 0:
		return nil
	case shown.Leaf != nil:
		return shown.Leaf
	}
	leaf, err := x509.ParseCertificate(shown.Certificate[0])
	if err != nil {
		return nil // check says what is wrong
	}
	return leaf
}

// errorTexts is what an error says, in one text for each of those that were joined in it.
func errorTexts(err error) (texts []string) {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return []string{err.Error()}
	}
	for _, one := range joined.Unwrap() {
		texts = append(texts, errorTexts(one)...)
	}
	return texts
}
