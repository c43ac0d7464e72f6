package admin

import (
	"encoding/json"
	"testing"
)

// FuzzPolicy: no body of a policy makes the decoder fail otherwise than with an
// error; what it takes it writes again, and reads as the same.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{
		`{"pattern":"^a","definition":{"max-length":5},"priority":1,"apply-to":"queues"}`, `{"pattern":"(","definition":[]}`,
		`{"pattern":"","definition":{"a":{"b":[1,1.5,1e400,9223372036854775808,null]}},"priority":"7"}`, `{"definition":{"x":-0}}`, `[]`, `{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var v values
		if json.Unmarshal(in, &v) != nil {
			return
		}
		once, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%v cannot be written: %v", v, err)
		}
		var again values
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%s cannot be read: %v", once, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
	})
}
