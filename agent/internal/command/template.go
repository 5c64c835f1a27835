package command

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// template is a text with placeholders. Each part is what it says or what an argument
// is; nothing in an argument is ever read as more than that.
type template []part

type part struct {
	literal string // where name is ""
	name    string // of a parameter
	form    form
}

// form is how an argument fills a placeholder.
type form int

const (
	formText   form = iota // {{.name}}
	formSpread             // {{.name...}}: the element of the command comes once for each of a list
	formFile               // {{file .name}}: the path of a file that holds it
)

const (
	leftBraces  = "{{"
	rightBraces = "}}"
)

var placeholder = regexp.MustCompile(`^(?:(file) )? ?\.([A-Za-z_][A-Za-z0-9_-]*)(\.\.\.)?$`)

const forms = `there is {{.name}}, {{.name...}} for a list, {{file .name}} for a secret, and {{"{{"}} for braces`

// parseTemplate reads a text. Errors: what is no placeholder, and what there is.
func parseTemplate(text string) (template, error) {
	var t template
	literal := func(text string) {
		if n := len(t); n > 0 && t[n-1].name == "" {
			t[n-1].literal += text
		} else if text != "" {
			t = append(t, part{literal: text})
		}
	}
	for {
		before, behind, found := strings.Cut(text, leftBraces)
		literal(before)
		if !found {
			return t, nil
		}
		inside, rest, closed := cutPlaceholder(behind)
		if !closed {
			return nil, errors.New("has a {{ without }}; " + forms)
		}
		if p, err := parsePlaceholder(inside); err != nil {
			return nil, err
		} else if p.name == "" {
			literal(p.literal)
		} else {
			t = append(t, p)
		}
		text = rest
	}
}

// cutPlaceholder finds the end of a placeholder, which may hold braces in quotes.
func cutPlaceholder(text string) (inside, rest string, closed bool) {
	if rest, ok := strings.CutPrefix(text, quotedOpen+rightBraces); ok {
		return quotedOpen, rest, true
	}
	return strings.Cut(text, rightBraces)
}

const quotedOpen = `"` + leftBraces + `"`

func parsePlaceholder(inside string) (part, error) {
	if inside == quotedOpen {
		return part{literal: leftBraces}, nil
	}
	m := placeholder.FindStringSubmatch(strings.TrimSpace(inside))
	switch {
	case m == nil || m[1] != "" && m[3] != "":
		return part{}, fmt.Errorf("%s%s%s is not a placeholder; %s", leftBraces, clip(inside), rightBraces, forms)
	case m[1] != "":
		return part{name: m[2], form: formFile}, nil
	case m[3] != "":
		return part{name: m[2], form: formSpread}, nil
	}
	return part{name: m[2]}, nil
}

// clip shortens what a message quotes.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// names returns the parameters in the template, in order.
func (t template) names() []string {
	var names []string
	for _, p := range t {
		if p.name != "" && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// spreads returns how many lists there are.
func (t template) spreads() int {
	n := 0
	for _, p := range t {
		if p.form == formSpread {
			n++
		}
	}
	return n
}

// first reports whether the argument called name may be what the text begins with.
func (t template) first(name string) bool {
	for _, p := range t {
		if p.name == name {
			return true
		}
		if p.name == "" {
			return false
		}
	}
	return false
}
