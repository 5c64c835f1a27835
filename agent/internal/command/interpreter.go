package command

import (
	"regexp"
	"slices"
	"strings"
)

// What stands for a placeholder in a word that is read for code. None of these bytes can
// be in a word otherwise.
const (
	markFree   = "\x00" // a text of the caller's
	markDashed = "\x02" // the same, and it may begin with -
	markTame   = "\x01" // what holds no code: a number, a word of an enum, the path of a file of ours

	freeMarks = markFree + markDashed
	allMarks  = freeMarks + markTame
)

// hasText reports whether a word holds a text of the caller's.
func hasText(word string) bool { return strings.ContainsAny(word, freeMarks) }

// hasMark reports whether a word holds anything that the file does not say.
func hasMark(word string) bool { return strings.ContainsAny(word, allMarks) }

// kind is what a word is for the program that gets it.
type kind int

const (
	kindAny     kind = iota // an option or an operand
	kindCode                // the code of an option
	kindFile                // the file with the code of an option
	kindValue               // the value of another option
	kindProgram             // a program to be executed
)

// reading is how a program reads the words behind it. Where words may be left out there
// are several.
type reading struct {
	of       *interpreter
	name     string
	executed bool // the program is: it is not just a word that is called like one
	next     kind
	operands int
	ended    bool // there are no more options
	command  bool // a shell's first operand is code
	stdin    bool // its code is in stdin: operands are arguments
	given    bool // its code was in an option, as before
	program  bool // an option says that the operands are a program
}

// interpreted follows the words of a command, to know which of them are code: what an
// argument of a call says there would be executed. It knows many programs. What is hidden
// in a script or behind another name is not seen.
type interpreted struct {
	began    bool
	readings []reading
	scripts  []script // the words that name programs and files of code
}

// next takes the words of one more element, which may be left out or come several times.
// The reason says why the word at must have no placeholder; "" if none is in the way.
func (i *interpreted) next(words []string, optional, repeated bool) (at int, reason string) {
	before := i.readings
	if !i.began {
		before = []reading{{of: &interpreter{operand: roleProgram}, executed: true, ended: true}}
	}
	after, at, reason := i.read(before, words)
	if reason == "" && repeated {
		var again []reading
		again, at, reason = i.read(after, words)
		after = append(after, again...)
	}
	if optional || repeated {
		after = append(after, before...)
	}
	i.readings, i.began = unique(after), true
	return at, reason
}

func (i *interpreted) read(readings []reading, words []string) (after []reading, at int, reason string) {
	for at, word := range words {
		after = nil
		for _, r := range readings {
			then, reason := i.word(r, word)
			if reason != "" {
				return nil, at, reason
			}
			after = append(after, then...)
		}
		if name, of := interpreterOf(word); of != nil && i.began {
			after = append(after, reading{of: of, name: name})
		}
		readings = unique(after)
	}
	return readings, 0, ""
}

func unique(all []reading) []reading {
	some := make([]reading, 0, len(all))
	for _, r := range all {
		if !slices.Contains(some, r) {
			some = append(some, r)
		}
	}
	return some
}

// readsStdin returns the program that takes its code from stdin; "" if none does.
func (i *interpreted) readsStdin() string {
	for _, r := range i.readings {
		fromStdin := r.operands == 0 && r.of.operand == roleFile || r.of.remote && r.operands <= r.of.skip
		if r.executed && (r.stdin || fromStdin && !r.given && !r.command) {
			return r.name
		}
	}
	return ""
}

// word reads one word.
func (i *interpreted) word(r reading, word string) (after []reading, reason string) {
	next := r.next
	if r.next = kindAny; next != kindAny {
		return i.value(r, next, word)
	}
	switch {
	case r.ended:
	case r.executed && strings.HasPrefix(word, markDashed):
		return nil, "it may begin with -, which " + r.name + " would take for an option"
	case word == "--":
		r.ended = true
		return []reading{r}, ""
	case word == "-" && r.of.operand != roleFile:
		return []reading{r}, ""
	case len(word) > 1 && strings.HasPrefix(word, "--"), len(word) > 1 && r.of.single && word[0] == '-':
		return i.long(r, strings.TrimLeft(word, "-"))
	case len(word) > 1 && (word[0] == '-' || r.of.shell && word[0] == '+'):
		return i.short(r, word[1:], word[0] == '-')
	}
	return i.operand(r, word)
}

// value reads what an option has said is coming.
func (i *interpreted) value(r reading, what kind, word string) ([]reading, string) {
	switch what {
	case kindCode:
		r.given = true
		if r.executed && r.of.final {
			r.ended = true
		}
		if hasText(word) && (r.of.harmless == nil || !r.of.harmless(word)) {
			return nil, r.readsCode()
		}
	case kindFile:
		if r.given = true; r.executed {
			if hasMark(word) {
				return nil, r.readsCode()
			}
			i.scripts = append(i.scripts, script{name: word})
		}
	case kindProgram:
		after, reason := i.execute(r, word)
		return append(after, r), reason
	case kindAny, kindValue:
	}
	return []reading{r}, ""
}

// short reads options of one letter each, the last of which may have a value.
func (i *interpreted) short(r reading, letters string, minus bool) ([]reading, string) {
	for at := range len(letters) {
		letter, rest := letters[at:at+1], letters[at+1:]
		switch {
		case r.executed && strings.Contains(freeMarks, letter):
			return nil, "it would be an option of " + r.name
		case r.of.shell:
			r.command = r.command || minus && letter == "c"
			r.stdin = r.stdin || minus && letter == "s"
			if letter == "o" || letter == "O" {
				r.next = kindValue
			}
			continue
		}
		r.program = r.program || strings.Contains(r.of.programFlags, letter)
		what := r.of.letter(letter, r.executed)
		switch {
		case what == kindAny && strings.Contains(r.of.attached, letter):
			return []reading{r}, ""
		case what == kindAny:
			continue
		case rest == "", what == kindCode && strings.Trim(rest, r.of.code) == "":
			r.next = what
			return []reading{r}, ""
		}
		return i.value(r, what, rest)
	}
	return []reading{r}, ""
}

// long reads an option with a name, which may be shortened.
func (i *interpreted) long(r reading, option string) ([]reading, string) {
	name, value, has := strings.Cut(option, "=")
	if r.executed && hasText(name) {
		return nil, "it would be an option of " + r.name
	}
	r.program = r.program || slices.Contains(r.of.programLongs, name)
	what := r.of.long(name, r.executed)
	switch {
	case what == kindAny:
		return []reading{r}, ""
	case has:
		return i.value(r, what, value)
	}
	r.next = what
	return []reading{r}, ""
}

var assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=`)

// operand reads what is no option.
func (i *interpreted) operand(r reading, word string) ([]reading, string) {
	role, skip, at := r.of.operand, r.of.skip, r.operands
	if r.program {
		role, skip = roleProgram, 0
	}
	if role == roleProgram && r.of.assigns {
		if m := assignment.FindStringSubmatch(word); m != nil {
			if hasText(word) && decides(m[1]) {
				return nil, m[1] + " decides which code runs"
			}
			return []reading{r}, ""
		}
	}
	r.operands = min(at+1, skip+1)
	if !r.of.permutes || at >= skip && role == roleRest {
		r.ended = true
	}
	first := at == skip && !r.given && !r.stdin
	switch {
	case at < skip:
	case r.of.shell && r.command:
		if at == 0 && hasText(word) {
			return nil, r.readsCode()
		}
	case !r.executed:
	case role == roleProgram && at == skip:
		return i.execute(r, word)
	case role == roleFile && first && word != "-":
		if hasMark(word) {
			return nil, r.readsCode()
		}
		i.scripts = append(i.scripts, script{name: word})
	case role == roleFile && first:
		r.stdin = true
	case role == roleCode && first && hasText(word), role == roleRest && hasText(word):
		return nil, r.readsCode()
	}
	return []reading{r}, ""
}

// execute begins to read the words of a program.
func (i *interpreted) execute(by reading, word string) ([]reading, string) {
	if !by.executed {
		return nil, ""
	}
	if hasMark(word) {
		return nil, "callers do not choose what " + by.name + " runs"
	}
	i.scripts = append(i.scripts, script{word, true})
	name, of := interpreterOf(word)
	if of == nil {
		return nil, ""
	}
	return []reading{{of: of, name: name, executed: true}}, ""
}

func (r reading) readsCode() string {
	if r.of.remote {
		return "a shell of the other host reads it as code; give it by stdin to a program there"
	}
	return r.name + " reads it as code; put it into a later element, which the code takes as an argument"
}
