package kernel

import (
	"strings"
	"testing"
)

func TestCheckNewName(t *testing.T) {
	ok := func(err error) bool { return err == nil }
	code := func(c Code) func(error) bool {
		return func(err error) bool { return err != nil && CodeOf(err) == c }
	}
	for name, want := range map[string]func(error) bool{
		"orders":                 ok,
		"a/b":                    ok,
		"#":                      ok, // a plain name is never a filter
		"$SYS/x":                 ok,
		strings.Repeat("é", 127): ok,
		"":                       code(CodeInvalidName),
		strings.Repeat("x", 256): code(CodeInvalidName),
		"a\x00":                  code(CodeInvalidName),
		"\xc3":                   code(CodeInvalidName),
		"amq.x":                  code(CodeAccessRefused),
		"$share/g/t":             code(CodeInvalidName),
		"$queue/t":               code(CodeInvalidName),
		"$session/c":             code(CodeInvalidName),
	} {
		if err := CheckNewName("queue", name); !want(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestReplyName: a name that only the broker makes, another one each time.
func TestReplyName(t *testing.T) {
	a, b := ReplyName(), ReplyName()
	if a == b || !IsReply(a) || !Reserved(a) || CheckName("queue", a) != nil || IsReply("amq.rabbitmq.reply-to") {
		t.Errorf("%s and %s", a, b)
	}
}

func TestCheckFilter(t *testing.T) {
	for _, good := range []string{"a", "#", "+", "a/#", "+/+", "/", "a//b", "+/a/#", "$share", "/+"} {
		if err := CheckFilter(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "#/a", "a#", "a/b#", "+a", "a/+b/c", "a/#/", "a\x00b"} {
		if err := CheckFilter(bad); CodeOf(err) != CodeInvalidName || err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestKeysAndNames(t *testing.T) {
	for name, key := range map[string]string{"a/b": "a.b", "/a": ".a", "plain": "plain", "a.b": "a.b"} {
		if got := KeyOfName(name); got != key {
			t.Errorf("key of %q is %q, want %q", name, got, key)
		}
	}
	for key, name := range map[string]string{"a.b": "a/b", "a.*": "a/+", "plain": "plain", "": ""} {
		if got := NameOfKey(key); got != name {
			t.Errorf("name of %q is %q, want %q", key, got, name)
		}
	}
}
