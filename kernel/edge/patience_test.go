package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// bare is a host whose links answer one question.
type bare struct{ Host }

type bareLink struct{ Link }

func (bare) Connect(kernel.Identity, kernel.ConnectionInfo, func(error)) (Link, error) {
	return bareLink{}, nil
}

func (bareLink) ID() kernel.ConnectionID                               { return 1 }
func (bareLink) Close()                                                {}
func (bareLink) Alarms() *broker.Alarms                                { return &broker.Alarms{} }
func (bareLink) OffsetGroups(context.Context) (list []string, _ error) { return list, nil }

// TestPatienceOfAnOutage: calls that come after the loss of a host wait for as long as the
// first of them together, and those of the next outage anew.
func TestPatienceOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		defer e.Close()
		e.Set(bare{})
		c, err := e.Connect(kernel.Identity{}, kernel.ConnectionInfo{}, nil)
		must(t, err)
		defer c.Close()
		c.SetPatience(5 * time.Second)
		ask := func() (time.Duration, error) {
			began := time.Now()
			_, err := c.OffsetGroups(t.Context())
			return time.Since(began), err
		}
		for range 2 {
			if took, err := ask(); took != 0 || err != nil {
				t.Error(took, err)
			}
			e.Set(nil)
			synctest.Wait()
			time.Sleep(2 * time.Second)
			for _, want := range []time.Duration{3 * time.Second, 0, 0} {
				took, err := ask()
				if took != want || kernel.CodeOf(err) != kernel.CodeUnavailable {
					t.Errorf("%v, want %v: %v", took, want, err)
				}
			}
			e.Set(bare{})
			time.Sleep(2 * time.Second) // until it is linked again
		}
	})
}
