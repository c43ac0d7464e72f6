package log

import "testing"

func TestTimeAndSizeOffset(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	for i := range 10 {
		f.publish(batch("b", 3, int64(100*i)), p) // times 100i, 100i+1, 100i+2
		if i == 4 {
			f.seal()
		}
	}
	for _, c := range []struct{ ts, offset, found int64 }{
		{-5, 0, 0}, {0, 0, 0}, {1, 1, 1}, {3, 3, 100}, {402, 14, 402}, {403, 15, 500}, {900, 27, 900}, {903, 30, -1},
	} {
		off, ts, err := p.TimeOffset(c.ts)
		if err != nil || off != c.offset || ts != c.found {
			t.Errorf("time %d: offset %d at %d, %v", c.ts, off, ts, err)
		}
	}
	one := int64(len(batch("b", 3, 0)))
	if p.Bytes() != 10*one {
		t.Errorf("%d bytes, want %d", p.Bytes(), 10*one)
	}
	for _, c := range []struct{ keep, offset int64 }{
		{0, 30}, {one - 1, 30}, {one, 27}, {5 * one, 15}, {6*one + 1, 12}, {10*one - 1, 3}, {10 * one, 0},
	} {
		if off, err := p.SizeOffset(c.keep); err != nil || off != c.offset {
			t.Errorf("keep %d: offset %d, %v", c.keep, off, err)
		}
	}
	p.Trim(20)
	if off, ts, err := p.TimeOffset(0); err != nil || off != 20 || ts != 602 {
		t.Errorf("after trim: %d at %d, %v", off, ts, err)
	}
}
