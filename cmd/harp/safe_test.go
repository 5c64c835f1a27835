package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSafeLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain, and café 你好 🎻":   "plain, and café 你好 🎻",
		"\x1b]0;title\a":         `\x1b]0;title\x07`,
		"a\nb\r\tc":              `a\nb\r\tc`,
		"\u009b2J":               `\u009b2J`,
		"del\x7f":                `del\x7f`,
		"right\u202eleft":        `right\u202eleft`,
		"no\u200bwidth":          `no\u200bwidth`,
		"two\u2028lines":         `two\u2028lines`,
		"\ufeffmark":             `\ufeffmark`,
		"tag\U000e0041":          `tag\U000e0041`,
		"bad\xff\xfe":            `bad\xff\xfe`,
		"a real \uFFFD":          "a real \uFFFD",
		"zero\x00":               `zero\x00`,
		"family 👩\u200d👩\u200d👧": "family 👩\u200d👩\u200d👧",
	} {
		if got := safeLine(in); got != want {
			t.Errorf("safeLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSafeJSON(t *testing.T) {
	in := "{\"a\":\"\x7f\u009b\u202e\u2066é\u200b\U000e0041\",\n\t\"b\":1}"
	got := string(safeJSON([]byte(in)))
	if want := "{\"a\":\"\\u007f\\u009b\\u202e\\u2066é\\u200b\\udb40\\udc41\",\n\t\"b\":1}"; got != want {
		t.Errorf("safeJSON = %q, want %q", got, want)
	}
	var was, is any
	if err := json.Unmarshal([]byte(in), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &is); err != nil {
		t.Fatal(err)
	}
	if was.(map[string]any)["a"] != is.(map[string]any)["a"] {
		t.Errorf("safeJSON changed the value: %q became %q", was, is)
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("\x1b[31mred\xff\u202e")
	f.Fuzz(func(t *testing.T, text string) {
		line := safeLine(text)
		if strings.ContainsFunc(line, unsafeRune) || !utf8.ValidString(line) {
			t.Errorf("safeLine(%q) = %q is not safe", text, line)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var was, is string
		if json.Unmarshal(encoded, &was) != nil || json.Unmarshal(safeJSON(encoded), &is) != nil || was != is {
			t.Errorf("safeJSON(%q) = %q is another value", encoded, safeJSON(encoded))
		}
	})
}
