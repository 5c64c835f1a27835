package target

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CompareVersions returns -1, 0 or 1 as the version a comes before b, at the same place
// or after it.
//
// A leading v is dropped, and a number before a colon is the epoch, which counts most.
// What remains are numbers and words, whose case is ignored; what is between them only
// separates. They are compared one by one, in this order: a tilde; alpha, beta, dev,
// nightly, pre, preview, rc, snapshot; the end; any other word; numbers. Zeros before a
// tilde, a word or the end are dropped, so that 1.2 and 1.2.0 are the same version.
func CompareVersions(a, b string) int {
	epochA, a := cutEpoch(a)
	epochB, b := cutEpoch(b)
	if c := compareNumbers(epochA, epochB); c != 0 {
		return c
	}
	runsA, runsB := versionRuns{rest: a}, versionRuns{rest: b}
	for {
		runA, runB := runsA.next(), runsB.next()
		if c := runA.compare(runB); c != 0 || runA.kind == runEnd {
			return c
		}
	}
}

// cutEpoch cuts a leading v and the epoch off a version.
func cutEpoch(text string) (epoch, rest string) {
	if len(text) > 1 && (text[0] == 'v' || text[0] == 'V') && isDigit(text[1]) {
		text = text[1:]
	}
	if n := countDigits(text); n > 0 && n < len(text) && text[n] == ':' {
		return strings.TrimLeft(text[:n], "0"), text[n+1:]
	}
	return "", text
}

func countDigits(text string) int {
	n := 0
	for n < len(text) && isDigit(text[n]) {
		n++
	}
	return n
}

// compareNumbers compares two numbers without leading zeros.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// runKind is what a part of a version is, in their order.
type runKind uint8

const (
	runTilde runKind = iota
	runEarly         // a word of what comes before a release
	runEnd
	runWord
	runNumber
)

type run struct {
	kind runKind
	text string // of a number, without leading zeros
}

func (r run) compare(other run) int {
	if c := cmp.Compare(r.kind, other.kind); c != 0 {
		return c
	}
	if r.kind == runNumber {
		return compareNumbers(r.text, other.text)
	}
	return compareFolded(r.text, other.text)
}

// versionRuns gives the runs of a version one by one.
type versionRuns struct {
	rest  string
	zeros int // that are still to be given, before held
	held  run
}

// next returns the next run that is not dropped; after the last one it always returns
// the end.
func (v *versionRuns) next() run {
	if v.zeros > 0 {
		if v.zeros--; v.zeros > 0 {
			return run{kind: runNumber}
		}
		return v.held
	}
	r := v.read()
	if r.kind != runNumber || r.text != "" {
		return r
	}
	zeros := 0
	for r.kind == runNumber && r.text == "" {
		zeros++
		r = v.read()
	}
	if r.kind != runNumber {
		return r
	}
	v.zeros, v.held = zeros, r
	return run{kind: runNumber}
}

// read returns the next run as it is written.
func (v *versionRuns) read() run {
	for v.rest != "" {
		r, n := utf8.DecodeRuneInString(v.rest)
		switch {
		case r == '~':
			v.rest = v.rest[n:]
			return run{kind: runTilde}
		case isDigit(r):
			return run{kind: runNumber, text: strings.TrimLeft(v.cut(countDigits(v.rest)), "0")}
		case unicode.IsLetter(r):
			word := v.cut(skipRunes(v.rest, 0, unicode.IsLetter))
			if isEarly(word) {
				return run{kind: runEarly, text: word}
			}
			return run{kind: runWord, text: word}
		}
		v.rest = v.rest[n:]
	}
	return run{kind: runEnd}
}

func (v *versionRuns) cut(n int) string {
	text := v.rest[:n]
	v.rest = v.rest[n:]
	return text
}

var earlyWords = []string{"alpha", "beta", "dev", "nightly", "pre", "preview", "rc", "snapshot"}

func isEarly(word string) bool {
	return slices.ContainsFunc(earlyWords, func(early string) bool { return compareFolded(early, word) == 0 })
}

// compareFolded compares two words without regard to case.
func compareFolded(a, b string) int {
	for a != "" && b != "" {
		r, n := utf8.DecodeRuneInString(a)
		s, m := utf8.DecodeRuneInString(b)
		if c := cmp.Compare(unicode.ToLower(r), unicode.ToLower(s)); c != 0 {
			return c
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}
