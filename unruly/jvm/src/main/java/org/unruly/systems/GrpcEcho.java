package org.unruly.systems;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.Options;

/**
 * gRPC over HTTP/2. Its messages are plain bytes, so no code is generated from a description.
 *
 * <p>Each worker has a channel of its own, which is a connection of its own.
 */
final class GrpcEcho implements EchoSystem {
  private static final String SERVICE = "unruly.Echo";

  private static final MethodDescriptor<byte[], byte[]> ECHO =
      MethodDescriptor.<byte[], byte[]>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName(SERVICE + "/Echo")
          .setRequestMarshaller(new Bytes())
          .setResponseMarshaller(new Bytes())
          .build();

  @Override
  public void serve(Options options) throws IOException {
    int port = EchoSystem.port(options);
    NettyServerBuilder.forAddress(new InetSocketAddress(options.text("host"), port))
        // an echo does not block, so it needs no thread besides those that read
        .directExecutor()
        .maxInboundMessageSize(MAX_BYTES)
        .addService(
            ServerServiceDefinition.builder(SERVICE)
                .addMethod(ECHO, ServerCalls.asyncUnaryCall(GrpcEcho::echo))
                .build())
        .build()
        .start();
  }

  private static void echo(byte[] request, StreamObserver<byte[]> reply) {
    reply.onNext(request);
    reply.onCompleted();
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    String host = options.text("host");
    int port = EchoSystem.port(options);
    return () ->
        new GrpcConnection(
            // an address: a name would be resolved again for each channel
            NettyChannelBuilder.forAddress(new InetSocketAddress(host, port))
                .usePlaintext()
                .directExecutor()
                .maxInboundMessageSize(MAX_BYTES)
                .build(),
            timeoutNs);
  }

  /** Passes an array on as it is. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException thrown) {
        throw new UncheckedIOException(thrown);
      }
    }
  }

  private static final class GrpcConnection extends Connection {
    private final ManagedChannel channel;
    private final long timeoutNs;

    private GrpcConnection(ManagedChannel channel, long timeoutNs) {
      this.channel = channel;
      this.timeoutNs = timeoutNs;
    }

    @Override
    void call(byte[] payload) throws Failure {
      CallOptions deadline =
          CallOptions.DEFAULT.withDeadlineAfter(timeoutNs, TimeUnit.NANOSECONDS);
      try {
        byte[] reply = ClientCalls.blockingUnaryCall(channel, ECHO, deadline, payload);
        keep(reply, 0, reply.length);
      } catch (StatusRuntimeException thrown) {
        throw new Failure(kind(thrown.getStatus().getCode()), thrown);
      }
    }

    private static Failure.Kind kind(Status.Code code) {
      return switch (code) {
        case UNAVAILABLE -> Failure.Kind.DISCONNECTED;
        case DEADLINE_EXCEEDED -> Failure.Kind.UNAVAILABLE;
        default -> Failure.Kind.STORE;
      };
    }

    @Override
    public void close() {
      channel.shutdownNow();
    }
  }
}
