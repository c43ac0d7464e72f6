package listener

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		begin := time.Now()
		if !m.Take(500, time.Second, nil) {
			t.Error("the first bytes were refused")
		}
		if !m.Over() || m.Take(1, time.Second, nil) || time.Since(begin) != time.Second {
			t.Errorf("over %v, after %v", m.Over(), time.Since(begin))
		}
		stop := make(chan struct{})
		close(stop)
		if m.Take(1, time.Hour, stop) {
			t.Error("took although stopped")
		}
		go func() {
			time.Sleep(time.Second)
			m.Add(-450)
			time.Sleep(time.Second)
			m.Add(-10)
		}()
		begin = time.Now()
		if !m.Take(60, time.Hour, nil) || time.Since(begin) != 2*time.Second {
			t.Errorf("waited %v", time.Since(begin))
		}
		if m.Used() != 100 || m.Over() {
			t.Errorf("%d used, over %v", m.Used(), m.Over())
		}
		var none *Memory
		none.Add(5)
		if !none.Take(1<<40, 0, nil) || none.Over() {
			t.Error("no budget has a limit")
		}
	})
}
