package history

import "testing"

// TestFence: what a lock protects takes a token once, and no earlier one any more.
func TestFence(t *testing.T) {
	f := &Fence{}
	for i, c := range []struct{ got, want bool }{
		{f.Take(1, "a"), true}, {f.Write(1), true}, {f.Take(1, "b"), false}, {f.Write(0), false},
		{f.Take(3, "b"), true}, {f.Write(1), false}, {f.Take(2, "a"), false}, {f.Write(3), true},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %v", i, c.got)
		}
	}
	if f.Taken() != 2 {
		t.Errorf("%d were taken", f.Taken())
	}
}

// TestTokensOfALog: each kind of difference between the tokens that were taken and the
// log that gives them is found.
func TestTokensOfALog(t *testing.T) {
	for name, c := range map[string]struct {
		log  []Token
		want int
	}{
		"as taken":                 {[]Token{{0, ""}, {1, "a"}, {2, "c"}, {3, "b"}}, 0},
		"one that nobody took":     {[]Token{{0, ""}, {1, "a"}, {2, "c"}, {3, "b"}, {4, "c"}}, 0},
		"a number that is missing": {[]Token{{0, ""}, {1, "a"}, {3, "b"}}, 1},
		"a number twice":           {[]Token{{0, ""}, {1, "a"}, {1, "c"}, {2, "c"}, {3, "b"}}, 1},
		"of somebody else":         {[]Token{{0, ""}, {1, "c"}, {2, "c"}, {3, "b"}}, 1},
		"the end is lost":          {[]Token{{0, ""}, {1, "a"}}, 1},
		"all is lost":              {nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Fence{}
			f.Take(1, "a")
			f.Take(3, "b")
			if wrong := f.Tokens(c.log); len(wrong) != c.want {
				t.Errorf("%q, want %d", wrong, c.want)
			}
		})
	}
}
