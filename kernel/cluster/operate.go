package cluster

import (
	"context"
	"errors"
)

type operateRequest struct{}
type operateReply struct{}

func (n *Node) answerOperate(context.Context, Identity, *operateRequest) (*operateReply, error) {
	return nil, errors.ErrUnsupported
}
