//! The lists: which behaviours run on which stores.

/// One test for each behaviour of a rig.
macro_rules! behaviours {
    ($rig:ident on $kind:ty: $($group:ident::{$($name:ident),+ $(,)?}),+ $(,)?) => {
        mod $rig {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let began = std::time::Instant::now();
                    crate::set::$group::$name::<$kind>().await;
                    println!("{} took {:?}", stringify!($name), began.elapsed());
                }
            )+)+
        }
    };
}

/// What every store has to bear.
macro_rules! on_every_store {
    ($rig:ident on $kind:ty $(, $group:ident::{$($name:ident),+ $(,)?})* $(,)?) => {
        behaviours! { $rig on $kind:
            deaths::{
                a_dead_leader_is_replaced_once_although_five_followers_live, a_node_comes_back_under_its_name,
                a_short_freeze_makes_no_second_leader, no_node_leads_on_a_store_that_stays_frozen,
            },
            rows::{
                a_session_deleted_by_hand, a_role_deleted_by_force, a_node_deleted_by_hand, everything_deleted_at_once,
            },
            links::{
                a_late_renewal_touches_no_successor, a_late_claim_is_no_grant, silence_one_way_is_silence,
                without_notifications_a_role_is_handed_over_all_the_same,
            },
            times::{every_second_of_the_minute_and_both_edges_of_summer_time},
            places::{two_clusters_in_one_place_never_touch, what_is_taken_often_is_given_up_once},
            $($group::{$($name),+}),*
        }
    };
}

/// What every server has to bear beside that.
macro_rules! on_every_server {
    ($rig:ident on $kind:ty) => {
        on_every_store! { $rig on $kind,
            servers::{
                a_server_that_is_killed_and_comes_back, connections_killed_again_and_again, replies_cut_in_the_middle,
                a_slow_and_narrow_link, credentials_that_are_refused_later, a_link_that_is_refused_and_reset,
                nothing_hangs_on_a_link_that_swallows_everything,
            },
        }
    };
}
