package command

import (
	"path/filepath"
	"strings"
)

// codeFlags are the options of interpreters whose next argument is code.
var codeFlags = map[string]string{
	"sh": "c", "ash": "c", "bash": "c", "csh": "c", "dash": "c", "fish": "c", "ksh": "c", "tcsh": "c", "zsh": "c", "su": "c",
	"python": "c", "pypy": "c", "perl": "eE", "ruby": "e", "lua": "e", "node": "ep", "php": "r", "Rscript": "e", "osascript": "e",
}

// interpreted follows the words of a command, to know which is code: what an argument of
// a call says there would be executed. A program that is hidden, in a script or behind
// another name, is not seen.
type interpreted struct {
	program string // the last word that is an interpreter
	flag    bool   // the word before says that code follows
}

// next takes one more word, and returns the interpreter that reads it as code.
func (i *interpreted) next(word string) (program string) {
	if i.flag {
		program = i.program
	}
	name := strings.TrimRight(filepath.Base(word), "0123456789.")
	if codeFlags[name] != "" {
		i.program = name
	}
	letters, option := strings.CutPrefix(word, "-")
	i.flag = option && !strings.HasPrefix(letters, "-") && strings.ContainsAny(letters, codeFlags[i.program])
	return program
}
