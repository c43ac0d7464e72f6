package route

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive matches by the rules as they are written down, word by word.
func naive(g *grammar, pattern, name string) bool {
	split := func(s string) []string {
		if s == "" {
			return nil
		}
		return strings.Split(s, string(g.sep))
	}
	p, n := split(pattern), split(name)
	if g.hidden != 0 && len(p) > 0 && len(n) > 0 && strings.HasPrefix(name, string(g.hidden)) && (p[0] == g.one || p[0] == g.rest) {
		return false
	}
	var match func(p, n []string) bool
	match = func(p, n []string) bool {
		switch {
		case len(p) == 0:
			return len(n) == 0
		case p[0] == g.rest:
			return match(p[1:], n) || (len(n) > 0 && match(p, n[1:]))
		case len(n) == 0:
			return false
		}
		return (p[0] == g.one || p[0] == n[0]) && match(p[1:], n[1:])
	}
	return match(p, n)
}

func matches(t trie[string], g *grammar, name string) []string {
	var got []string
	t.match(g, name, func(v string) { got = append(got, v) })
	slices.Sort(got)
	return got
}

func TestTrieTable(t *testing.T) {
	for _, tc := range []struct {
		g             *grammar
		pattern, name string
		want          bool
	}{
		// AMQP 0-9-1, 3.1.3.3, and what RabbitMQ's tests fix.
		{&keyGrammar, "*.stock.#", "usd.stock", true},
		{&keyGrammar, "*.stock.#", "eur.stock.db", true},
		{&keyGrammar, "*.stock.#", "stock.nasdaq", false},
		{&keyGrammar, "#", "", true},
		{&keyGrammar, "", "", true},
		{&keyGrammar, "*", "", false},
		{&keyGrammar, "#.#", "", true},
		{&keyGrammar, "*.#", "a", true},
		{&keyGrammar, "#.a.#", "a", true},
		{&keyGrammar, "a.#.b", "a.b", true},
		{&keyGrammar, "a.*.b", "a..b", true},
		{&keyGrammar, "*.*", ".", true},
		{&keyGrammar, "*", ".", false},
		// MQTT 5, 4.7.1.
		{&filterGrammar, "sport/tennis/player1/#", "sport/tennis/player1", true},
		{&filterGrammar, "sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true},
		{&filterGrammar, "sport/#", "sport", true},
		{&filterGrammar, "sport/tennis/+", "sport/tennis/player1/ranking", false},
		{&filterGrammar, "sport/+", "sport", false},
		{&filterGrammar, "sport/+", "sport/", true},
		{&filterGrammar, "+/+", "/finance", true},
		{&filterGrammar, "/+", "/finance", true},
		{&filterGrammar, "+", "/finance", false},
		{&filterGrammar, "#", "$SYS/x", false},
		{&filterGrammar, "+/x", "$SYS/x", false},
		{&filterGrammar, "$SYS/#", "$SYS/x", true},
		{&filterGrammar, "$SYS/monitor/+", "$SYS/monitor/Clients", true},
		{&filterGrammar, "a/#", "a/$b", true},
	} {
		if got := naive(tc.g, tc.pattern, tc.name); got != tc.want {
			t.Errorf("naive: %q matches %q: %v", tc.pattern, tc.name, got)
		}
		tr := trie[string]{}.put(tc.g, tc.pattern, "id", tc.pattern)
		if got := len(matches(tr, tc.g, tc.name)) == 1; got != tc.want {
			t.Errorf("trie: %q matches %q: %v", tc.pattern, tc.name, got)
		}
	}
}

// TestTrie compares with the naive matcher while patterns come and go, and
// checks that old snapshots stay as they were.
func TestTrie(t *testing.T) {
	for name, g := range map[string]*grammar{"keys": &keyGrammar, "filters": &filterGrammar} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				word := rapid.SampledFrom([]string{"", "a", "b", "$s"})
				part := rapid.SampledFrom([]string{"", "a", "b", "$s", g.one, g.rest})
				join := func(w []string) string { return strings.Join(w, string(g.sep)) }
				pattern := rapid.Map(rapid.SliceOfN(part, 0, 5), join)
				key := rapid.Map(rapid.SliceOfN(word, 0, 5), join)
				type snapshot struct {
					trie trie[string]
					have []string
				}
				now := snapshot{}
				history := []snapshot{now}
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					p := pattern.Draw(t, "pattern")
					have := slices.Clone(now.have)
					if i := slices.Index(have, p); i >= 0 {
						now = snapshot{now.trie.delete(g, p, "id"), slices.Delete(have, i, i+1)}
					} else {
						now = snapshot{now.trie.put(g, p, "id", p), append(have, p)}
					}
					history = append(history, now)
				}
				for range 5 {
					k := key.Draw(t, "key")
					for _, s := range history {
						var want []string
						for _, p := range s.have {
							if naive(g, p, k) {
								want = append(want, p)
							}
						}
						slices.Sort(want)
						if got := matches(s.trie, g, k); !slices.Equal(got, want) {
							t.Fatalf("%q of %q: got %q, want %q", k, s.have, got, want)
						}
					}
				}
				for _, p := range now.have {
					if _, ok := now.trie.exact(g, p).Get("id"); !ok {
						t.Fatalf("%q is not found", p)
					}
					now.trie = now.trie.delete(g, p, "id")
				}
				if now.trie.root != nil {
					t.Fatal("an empty trie keeps nodes")
				}
			})
		})
	}
}

// TestHostilePattern matches a key of many words against patterns that a
// backtracking matcher would need ages for.
func TestHostilePattern(t *testing.T) {
	pattern := strings.Repeat("#.a.", 30) + "b"
	tr := trie[string]{}.put(&keyGrammar, pattern, "id", "v")
	key := strings.TrimSuffix(strings.Repeat("a.", 127), ".")
	begin := time.Now()
	if got := matches(tr, &keyGrammar, key); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	if got := matches(tr, &keyGrammar, key+".b"); len(got) != 1 {
		t.Errorf("got %q", got)
	}
	if d := time.Since(begin); d > 20*time.Second { // who tries all ways does not come back
		t.Errorf("it took %v", d)
	}
}
