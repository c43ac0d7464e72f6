package kafka

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestKafkaName(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"orders", "orders"}, {"a.b_c-D9", "a.b_c-D9"}, {"sensors/1", "sensors_x2F1"},
		{"tax_xml", "tax_xml"}, {"a_x2F", "a_x5Fx2F"}, {"_x5Fx", "_x5Fx5Fx"}, {"é", "_xC3_xA9"},
		{".", "_x2E"}, {"..", "_x2E."}, {"...", "..."}, {"__/", "___x2F"}, {" ", "_x20"},
	} {
		got, ok := kafkaName(c.name)
		if got != c.want || !ok {
			t.Errorf("kafkaName(%q) = %q, %v, want %q", c.name, got, ok, c.want)
		}
	}
	if _, ok := kafkaName(strings.Repeat("a", 250)); ok {
		t.Error("a name of 250 bytes is not hidden")
	}
	if _, ok := kafkaName(strings.Repeat("/", 63)); ok {
		t.Error("a name of 63 escapes is not hidden")
	}
}

func TestTopicName(t *testing.T) {
	for _, c := range []struct {
		k, want       string
		canonical, ok bool
	}{
		{"orders", "orders", true, true}, {"sensors_x2F1", "sensors/1", true, true}, {"tax_xml", "tax_xml", true, true},
		{"a_x5Fxb", "a_xb", false, true}, {"_x41", "A", false, true}, {"_x2f", "_x2f", true, true},
		{"a/b", "", false, false}, {".", "", false, false}, {"", "", false, false}, {strings.Repeat("a", 250), "", false, false},
	} {
		got, canonical, ok := topicName(c.k)
		if got != c.want || canonical != c.canonical || ok != c.ok {
			t.Errorf("topicName(%q) = %q, %v, %v", c.k, got, canonical, ok)
		}
	}
}

// Every name that is shown leads back to its topic, and to no other.
func TestNamesRoundTrip(t *testing.T) {
	part := rapid.SampledFrom([]string{"_", "x", "_x", "_x2F", "2F", "5F", "A", "/", ".", "é", "\x00", "-"})
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOfN(part, 1, 30).Draw(t, "parts"), "")
		if rapid.Bool().Draw(t, "any") {
			name = string(rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "bytes"))
		}
		k, ok := kafkaName(name)
		if !ok {
			return
		}
		if back, canonical, ok := topicName(k); back != name || !canonical || !ok {
			t.Fatalf("%q is shown as %q, which reads %q, %v, %v", name, k, back, canonical, ok)
		}
	})
}
